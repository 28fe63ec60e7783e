"""Context losses of a model: read from beside its weights, else computed and stored there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.model_ref import ModelRef, resolve, same_with_resets
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, Progress, ReclRequest, Subject
from txlbench.commands.same_bytes import BytePass, byte_passes, tokenizers_differ
from txlbench.commands.texts import ScoredText, read_text
from txlbench.config.catalogue import CORPORA
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp, segments_of, window_rope
from txlbench.config.run_config import CorpusConfig
from txlbench.data.planted import PROCESS, Planted
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import GivenPositions, Positions, count_windows
from txlbench.machine import memory_limit
from txlbench.records.loss_file import LossFile, read_loss_file

OPTIMUM = f"optimum:{Planted.name}"
"""Names the best losses that any model of the corpus `planted` can have."""

Check = Callable[[NDArray[np.int64]], None]
"""Raises UserError where positions do not do for what the losses are for."""


def silent(reference: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def context_losses_of(reference: str, request: ReclRequest, progress: Progress = silent) -> Subject:
    """The losses of the model that `reference` names, at `request.contexts`.

    Raises:
        UserError: if there is no such model, it does not fit the corpus, or the corpus is too
            short for what is asked.
    """
    return losses_of_all([reference], request, progress)[reference]


def losses_of_all(
    references: Iterable[str],
    request: ReclRequest,
    progress: Progress = silent,
    check: Check | None = None,
) -> dict[str, Subject]:
    """The losses of several models by reference; all are found before any of them is read.

    Models of one tokenizer are scored by token, models of several on the same bytes.

    Raises:
        UserError: as `context_losses_of`, or from `check`, before a window is read.
    """
    plans = _plans(list(references), request)
    passes = {each.path: each for plan in plans.values() for each in plan}
    _check_size(list(passes.values()), request)
    _check_texts(plans, request)
    if check is not None:
        for each in passes.values():
            check(each.targets)
    waiting = [each for path, each in passes.items() if not path.exists()]
    total, done = sum(each.windows for each in waiting), 0
    for each in waiting:
        each.compute(progress, done, total)
        done += each.windows
    return {name: _subject(name, plan, request) for name, plan in plans.items()}


def check_size(references: Iterable[str], request: ReclRequest) -> None:
    """Refuses (UserError) losses that memory does not hold, before anything is read."""
    try:
        plans = _plans(list(references), request)
    except UserError:  # told where the losses are needed
        return
    _check_size([each for plan in plans.values() for each in plan], request)


BYTES_OF_A_LOSS = 72
"""Main memory that a loss takes while windows are read (73 were measured of 4 million): the start
of its window, its place, context and length, sorted, and the loss itself."""


def _check_size(passes: Sequence["_Pass | BytePass"], request: ReclRequest) -> None:
    contexts = request.contexts or DEFAULT_CONTEXTS
    limit, targets = memory_limit(), max((len(each.targets) for each in passes), default=0)
    needed = BYTES_OF_A_LOSS * len(contexts) * targets
    if limit is None or needed <= limit:
        return
    raise UserError(
        f"losses of {targets:,} tokens at {len(contexts):,} contexts of up to {contexts[-1]:,} "
        f"take at least {needed / 1e9:,.1f} GB of memory, where there are {limit / 1e9:,.1f}",
        "give fewer --tokens or contexts, or a smaller --dense",
    )


def _check_texts(plans: Mapping[str, "Plan"], request: ReclRequest) -> None:
    """Refuses (UserError) models of one group on different texts, before they are read."""
    for group in request.groups:
        texts = [
            (name, plan[0].text)
            for name, plan in plans.items()
            if name in group and plan and isinstance(plan[0].text, ScoredText)
        ]
        for name, text in texts[1:]:
            first, other = texts[0]
            if (text.checksum, text.split) != (other.checksum, other.split):
                raise UserError(
                    f"{name}: is read on {text.place}, but {first} on {other.place}",
                    "give --corpus for all, or groups of one corpus each",
                )


@dataclass(frozen=True)
class _Pass:
    """One model over the windows of a text, whose losses lie at `path` once it is done."""

    ref: ModelRef
    text: ScoredText
    positions: Positions | GivenPositions
    request: ReclRequest
    path: Path

    @property
    def targets(self) -> NDArray[np.int64]:
        """The index of each predicted token."""
        return self.positions.array

    @property
    def windows(self) -> int:
        """The number of windows to read."""
        longest = self.ref.capabilities.longest_context
        contexts = np.array(self.request.contexts or DEFAULT_CONTEXTS)
        usable = contexts if longest is None else np.minimum(contexts, longest)
        return count_windows(usable, self.positions.array)

    def compute(self, progress: Progress, before: int, total: int) -> None:
        """Reads what is not read yet; `before` of all windows belong to earlier models."""
        from txlbench.commands.context_pass import compute

        def watch(done: int, _: int) -> None:
            progress(self.ref.reference, before + done, total)

        compute(self.ref, self.text, self.positions.array, self.request, self.path, watch)

    def read(self) -> LossFile:
        """The stored losses, called as the user calls the model."""
        return replace(read_loss_file(self.path), name=self.ref.reference)


Plan = Sequence[_Pass | BytePass]
"""The pass of a model, then that of the same model trained with memory resets, if any."""


def _plans(references: Sequence[str], request: ReclRequest) -> dict[str, Plan]:
    """The plan of each model by reference; an empty one for the optimum."""
    refs = {
        name: [each for each in (ref, same_with_resets(ref)) if each is not None]
        for name in references
        if name != OPTIMUM
        for ref in [resolve(name, request.checkpoint)]
    }
    every = [ref for each in refs.values() for ref in each]
    for ref in every:
        _check_attention(ref, request)
    if not tokenizers_differ(every):
        return {name: [_pass(ref, request) for ref in refs.get(name, ())] for name in references}
    if OPTIMUM in references:
        raise UserError(
            f"{OPTIMUM}: is known by token, the other models have several tokenizers",
            "leave it out, or the models of another tokenizer",
        )
    passes = {each.ref.reference: each for each in byte_passes(every, request)}
    return {name: [passes[ref.reference] for ref in refs[name]] for name in references}


def _check_attention(ref: ModelRef, request: ReclRequest) -> None:
    """Refuses (UserError) keys to see of a model that they cannot be chosen of."""
    source = ref.pretrained
    if request.sinks is not None and source is None:
        raise UserError(
            f"--sinks {request.sinks}: is of pretrained models, not of {ref.reference}",
            "drop the option",
        )
    if request.attention_length is None or source is None or source.takes_attention_length:
        return
    raise UserError(
        f"--attention-length: is not to be chosen of {ref.reference}: no mask decides what "
        f"{source.architecture} sees",
        "drop the option",
    )


def _pass(ref: ModelRef, request: ReclRequest) -> _Pass:
    ref.check_contexts(request.contexts or DEFAULT_CONTEXTS)
    text = read_text(ref, request.corpus, request.level, request.split)
    positions = request.positions_in(len(text.ids), text.period)
    return _Pass(ref, text, positions, request, _place(ref, text, positions, request))


def _subject(reference: str, plan: Plan, request: ReclRequest) -> Subject:
    if not plan:
        return Subject(reference, optimum_losses(request))
    losses, *resets = [each.read() for each in plan]
    with_resets = resets[0] if resets else None
    ref, text = plan[0].ref, plan[0].text
    by_token = text if isinstance(text, ScoredText) else None
    return Subject(reference, losses, ref.paper, with_resets=with_resets, ref=ref, text=by_token)


def optimum_losses(request: ReclRequest) -> LossFile:
    """The lowest possible loss at every position and context; UserError for another corpus."""
    if request.corpus not in (None, Planted.name):
        raise UserError(f"{OPTIMUM}: is not of {request.corpus}", "drop --corpus")
    corpus, split = prepare(CorpusConfig(name=Planted.name)), request.split or "test"
    if split == "all":
        raise UserError(f"{OPTIMUM}: --split all", "choose train, valid or test")
    ids = corpus.ids(split)
    contexts = np.array(request.contexts or DEFAULT_CONTEXTS, dtype=np.int64)
    positions = request.positions_in(len(ids), CORPORA[Planted.name].period).array
    losses = PROCESS.losses(ids, positions[None, :], contexts[:, None])
    return LossFile(
        losses.astype(np.float32),
        contexts,
        positions,
        name=OPTIMUM,
        corpus=corpus.checksum,
        split=split,
        vocabulary=corpus.vocabulary.fingerprint,
        settings={"unit": "bpc"},
    )


def _place(
    ref: ModelRef, text: ScoredText, positions: Positions | GivenPositions, request: ReclRequest
) -> Path:
    """The path of the losses, named for all that decides them but the kind of machine."""
    decides: dict[str, object] = {
        "weights": ref.fingerprint(),
        "corpus": text.checksum,
        "vocabulary": text.vocabulary,
        "split": text.split,
        "contexts": request.contexts or DEFAULT_CONTEXTS,
        "positions": positions.key,
        "attention_length": request.attention_length,
        "clamp_len": None if ref.config is None else evaluation_clamp(ref.config),
        "tgt_len": None if ref.config is None else segments_of(ref.config).tgt_len,
    }
    longest = (request.contexts or DEFAULT_CONTEXTS)[-1]
    rope = window_rope(ref.config, request.attention_length or longest)
    if rope is not None:
        decides["rope"] = rope.model_dump()
    if request.precision != "fp32":
        decides["precision"] = request.precision
    if request.sinks is not None:
        decides["sinks"] = request.sinks
    return ref.losses / f"{text.split}-{fingerprint(decides, 16)}.npz"

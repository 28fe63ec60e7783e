"""`probe`: what models do with changed far context, with repeated texts and with a short cache.

Every pass is kept beside the weights, named for the windows that were read.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.context_pass import window_model
from txlbench.commands.evaluate import wrong_vocabulary
from txlbench.commands.model_ref import LoadedModel, ModelRef, resolve_seeds
from txlbench.commands.names import short_titles
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.recl import identity, is_loss_file
from txlbench.commands.recl_request import Progress, ReclRequest
from txlbench.commands.stored_losses import silent
from txlbench.commands.texts import ScoredText, read_text
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp, segments_of
from txlbench.errors import UserError
from txlbench.evaluation.context.changed_windows import TokenWindows, last_losses
from txlbench.evaluation.context.far_context import (
    Change,
    FarLosses,
    changed_windows,
    evictions,
    far_contexts,
    plain_windows,
    why_not_ablated,
)
from txlbench.evaluation.context.forgetting import (
    FEWEST_TEXTS,
    Recall,
    copy_windows,
    forgetting_curve,
    scored_tokens,
    text_starts,
)
from txlbench.evaluation.context.resampling import interval
from txlbench.evaluation.context_losses import PartialLosses
from txlbench.machine import current_commit, own_device
from txlbench.records.context_schema import Missing
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.finding_schema import ReclSource
from txlbench.records.probe_schema import ForgettingCurve, ProbeRecord, ProbeResult

CONTEXTS = (16, 64, 256)
CHANGES = ("shuffle", "shuffle:8", "reverse", "other", "frequent", "rare")
LENGTHS = (8, 16, 32, 64, 128, 256)
TOKENS = 500
PROBES = ("far", "forgetting", "cache")
EVICTION = "cache eviction"


@dataclass(frozen=True)
class ProbeRequest(ReclRequest):
    """A call of `probe`: models and text as of `recl`.

    Attributes:
        contexts: ascending; the last is n, the others the k of perturbed context and caches.
        probes: of `PROBES`.
        changes: names of changes of the far context.
        lengths: of texts to recall.
        texts: texts of each length.
        kept_sinks: keys at the start of a window that a cache keeps.
        own_memory: texts are recalled with as many keys as a model's own memory, and its own.
    """

    probes: tuple[str, ...] = PROBES
    changes: tuple[str, ...] = CHANGES
    lengths: tuple[int, ...] = LENGTHS
    texts: int = 40
    kept_sinks: int = 4
    own_memory: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.changes:
            Change.parse(name)
        if unknown := [each for each in self.probes if each not in PROBES]:
            raise UserError(f"--probes: {unknown[0]!r} found", f"give some of {', '.join(PROBES)}")
        if self.contexts is not None and len(self.contexts) < 2:
            raise UserError(
                f"--contexts: {self.contexts[0]} alone", "give what is kept, then the whole context"
            )


def run_probe(request: ProbeRequest, progress: Progress = silent) -> PublishedFinding:
    """Probes every model and writes probe.json, tables, figures and a page."""
    directory = request.out or RESULTS / f"probe-{identity(request)}"
    return publish(directory / "probe.json", lambda: measure_probes(request, progress))


def measure_probes(request: ProbeRequest, progress: Progress = silent) -> ProbeRecord:
    """Probes every model, each on its own tokens. Writes nothing but losses.

    Raises:
        UserError: if there is no such model, or it does not fit the text.
    """
    asked = replace(request, contexts=request.contexts or CONTEXTS, tokens=request.tokens or TOKENS)
    names = dict.fromkeys(name for group in asked.groups for name in group)
    if files := [name for name in names if is_loss_file(name)]:
        raise UserError(f"{files[0]}: is a loss file, and probes read the model", "name the model")
    refs = {ref.reference: ref for name in names for ref in resolve_seeds(name, asked.checkpoint)}
    texts = [read_text(ref, asked.corpus, asked.level, asked.split) for ref in refs.values()]
    watch = _Watch(progress, sum(_most_windows(asked, ref) for ref in refs.values()))
    passes = [
        _Probes(ref, text, asked, watch) for ref, text in zip(refs.values(), texts, strict=True)
    ]
    titles = short_titles(list(refs))
    return ProbeRecord(
        schema=ProbeRecord.SCHEMA,
        contexts=asked.contexts or CONTEXTS,
        changes=asked.changes,
        lengths=asked.lengths,
        sinks=asked.kept_sinks,
        seed=asked.seed,
        commit=current_commit(),
        command=asked.command,
        models={title: each.source for title, each in zip(titles, passes, strict=True)},
        results=tuple(each.result(title) for title, each in zip(titles, passes, strict=True)),
    )


def _most_windows(request: ProbeRequest, ref: ModelRef) -> int:
    """Windows that are read of a model which allows every probe."""
    nearest, tokens = len(request.contexts or CONTEXTS) - 1, request.tokens or TOKENS
    passes = {
        "far": nearest * (1 + len(request.changes)) * tokens,
        "cache": nearest * (1 + (ref.pretrained is not None)) * tokens,
        "forgetting": 2 * request.texts * len(request.lengths),
    }
    whole = tokens * bool({"far", "cache"} & {*request.probes})
    return whole + sum(passes[each] for each in dict.fromkeys(request.probes))


@dataclass
class _Watch:
    """Tells how many windows of all models are done."""

    progress: Progress
    total: int
    done: int = 0

    def of(self, reference: str) -> Callable[[int, int], None]:
        """Progress of the next pass of a model."""
        before = self.done

        def watch(done: int, _: int) -> None:
            self.done = before + done
            self.progress(reference, self.done, self.total)

        return watch


@dataclass(frozen=True)
class _Probes:
    """One model on one text.

    Attributes:
        missing: what turns out not to be available.
    """

    ref: ModelRef
    text: ScoredText
    request: ProbeRequest
    watch: _Watch
    missing: list[Missing] = field(default_factory=list)

    @cached_property
    def source(self) -> ReclSource:
        ref, text = self.ref, self.text
        return ReclSource(
            reference=ref.reference,
            path=None,
            corpus=text.checksum,
            split=text.split,
            vocabulary=text.vocabulary,
            model=ref.fingerprint(),
            longest=ref.capabilities.longest_context,
            settings={
                "corpus": text.name,
                "checkpoint": ref.checkpoint,
                "precision": self.request.precision,
                "recall_attention_length": self._recall_attention_length,
            },
        )

    def result(self, title: str) -> ProbeResult:
        """All probes that were asked for."""
        probes, missing = self.request.probes, self.missing
        forgetting = self._forgetting() if "forgetting" in probes else None
        if not {"far", "cache"} & {*probes}:
            context = (self.request.contexts or CONTEXTS)[-1]
            return ProbeResult(
                model=title, context=context, tokens=0, blocks=None, full=None, far=(),
                evictions=(), forgetting=forgetting, missing=tuple(missing),
            )  # fmt: skip
        losses = self._far_losses()
        resampling = losses.resampling(self._positions, self.request.seed)
        far = tuple(far_contexts(losses, resampling)) if "far" in probes else ()
        missing += why_not_ablated(far, resampling)
        if resampling.problem:
            missing.append(Missing(measure="intervals", reason=resampling.problem))
        return ProbeResult(
            model=title,
            context=self._context,
            tokens=len(self._positions),
            blocks=resampling.blocks,
            full=interval(resampling.means(losses.full)),
            far=far,
            evictions=tuple(evictions(losses, resampling)),
            forgetting=forgetting,
            missing=tuple(missing),
        )

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        self.ref.check_contexts(self.request.contexts or CONTEXTS)
        return self.request.positions_in(len(self.text.ids), self.text.period).array

    @property
    def _context(self) -> int:
        """n, or what the model can use of it."""
        asked = (self.request.contexts or CONTEXTS)[-1]
        longest = self.ref.capabilities.longest_context
        return asked if longest is None else min(asked, longest)

    def _far_losses(self) -> FarLosses:
        ids, positions, context = self.text.ids, self._positions, self._context
        full = self._losses(plain_windows(ids, positions, context))
        if problem := wrong_vocabulary(self.ref, float(full.mean())):
            raise UserError(problem, "give the corpus it was trained on")
        nearest = [k for k in (self.request.contexts or CONTEXTS)[:-1] if k < context]
        if len(nearest) < len(self.request.contexts or CONTEXTS) - 1:
            why = f"the model can use {context} tokens only"
            self.missing.append(Missing(measure=f"contexts beyond {context}", reason=why))
        found = FarLosses(full, {}, {}, {}, {})
        if "far" not in self.request.probes:
            return self._with_caches(found, nearest)
        cut = {k: self._losses(plain_windows(ids, positions, k)) for k in nearest}
        changed = {(k, name): loss for k in nearest for name, loss in self._changed(k)}
        return self._with_caches(replace(found, cut=cut, changed=changed), nearest)

    def _changed(self, near: int) -> Iterator[tuple[str, NDArray[np.float64]]]:
        for name in self.request.changes:
            try:
                windows = changed_windows(
                    self.text.ids, self._positions, near, self._context, Change.parse(name),
                    self.request.seed,
                )  # fmt: skip
            except UserError as error:
                self._lacks(f"{name} beyond {near} tokens", error)
                continue
            yield name, self._losses(windows)

    def _with_caches(self, found: FarLosses, nearest: Sequence[int]) -> FarLosses:
        """The losses with those of caches of `nearest` keys, as far as the model allows them."""
        if "cache" not in self.request.probes:
            return found
        source, sinks = self.ref.pretrained, self.request.kept_sinks
        allows = self.ref.capabilities.attends if source is None else source.takes_attention_length
        if not allows:
            why = "no mask decides what the model sees"
            self.missing.append(Missing(measure=EVICTION, reason=why))
            return found
        windows = plain_windows(self.text.ids, self._positions, self._context)
        try:
            window = {k: self._losses(windows, attention_length=k) for k in nearest}
            if source is None:
                why = "they are of pretrained models; memory here holds the newest tokens only"
                self.missing.append(Missing(measure="sinks", reason=why))
                return replace(found, window=window)
            kept = {
                k: self._losses(windows, attention_length=k - sinks, sinks=sinks)
                for k in nearest
                if k > sinks
            }
        except UserError as error:
            self._lacks(EVICTION, error)
            return found
        return replace(found, window=window, sinks=kept)

    def _forgetting(self) -> ForgettingCurve | None:
        recalls: dict[int, Recall] = {}
        known = self.ref.capabilities
        limits = [each for each in (known.longest_context, known.positions) if each is not None]
        for length in self.request.lengths:
            starts = text_starts(len(self.text.ids), length, self.request.texts)
            try:
                if limits and 2 * length - 1 > min(limits):
                    raise UserError(f"the model can use {min(limits)} tokens only", "")
                if len(starts) < FEWEST_TEXTS:
                    raise UserError(
                        f"{len(starts)} texts, and {FEWEST_TEXTS} are needed", "give a longer text"
                    )
                recalls[length] = self._recall(length, starts)
            except UserError as error:
                self._lacks(f"recall of {length} tokens", error)
        return forgetting_curve(recalls, self.request.seed) if recalls else None

    def _recall(self, length: int, starts: NDArray[np.int64]) -> Recall:
        return Recall.of(
            *(
                self._read(
                    windows,
                    scored_tokens(length),
                    attention_length=self._recall_attention_length,
                    with_hits=True,
                )
                for windows in copy_windows(self.text.ids, length, starts)
            )
        )

    @property
    def _recall_attention_length(self) -> int | None:
        """Keys that queries see where a model's own memory was asked for; None for all."""
        if not self.request.own_memory or self.ref.config is None:
            return None
        memory = segments_of(self.ref.config).memory
        return memory + 1 if memory and self.ref.capabilities.attends else None

    def _lacks(self, measure: str, error: UserError) -> None:
        self.missing.append(Missing(measure=measure, reason=error.problem))

    def _losses(
        self,
        windows: TokenWindows,
        attention_length: int | None = None,
        sinks: int | None = None,
    ) -> NDArray[np.float64]:
        """[W]: the loss on the last token of each window."""
        found = self._read(windows, 1, attention_length=attention_length, sinks=sinks)
        return found[:, 0, 0].astype(np.float64)

    def _read(
        self,
        windows: TokenWindows,
        scored: int,
        *,
        attention_length: int | None = None,
        sinks: int | None = None,
        with_hits: bool = False,
    ) -> NDArray[np.float32]:
        """See `last_losses`; what earlier calls read is not read again."""
        ref, request, device = self.ref, self.request, own_device(self.request.device)
        asked = replace(request, attention_length=attention_length, sinks=sinks)
        longest = np.array([max(map(len, windows)) - 1])
        decides = {
            "weights": self.source.model,
            "windows": _checksum(windows),
            "scored": scored,
            "hits": with_hits,
            "attention_length": attention_length,
            "sinks": sinks,
            "clamp_len": None if ref.config is None else evaluation_clamp(ref.config),
            "precision": request.precision,
        }
        path = ref.losses / f"probe-{fingerprint(decides, 16)}.f4"
        with PartialLosses(path) as kept:
            found = last_losses(
                lambda: window_model(self._loaded, asked, longest, device, self.text.ids),
                windows,
                scored,
                kept,
                with_hits=with_hits,
                device=device,
                progress=self.watch.of(ref.reference),
            )
        if not np.isfinite(found).all():
            path.unlink()
            raise UserError(f"{ref.reference}: a loss is not a number", "train it anew")
        return found

    @cached_property
    def _loaded(self) -> LoadedModel:
        return self.ref.load(own_device(self.request.device), self.request.precision)


def _checksum(windows: TokenWindows) -> str:
    digest = hashlib.sha256()
    for window in windows:
        digest.update(len(window).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(window, dtype="<i8").data)
    return digest.hexdigest()

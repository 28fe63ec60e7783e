"""`eval`: measures any model on any text, as the result table measures its row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from txlbench.commands.model_ref import ModelRef, resolve_seeds
from txlbench.commands.pretrained import score_pretrained, window_measurements
from txlbench.commands.texts import ScoredText, read_ids, read_text
from txlbench.config.base import Part, RopeKind, displayed
from txlbench.config.catalogue import Level
from txlbench.config.measurements import (
    Measurement,
    Settings,
    at_attention_length,
    evaluation_clamp,
    rope_scaling,
    segments_of,
    training_regime,
)
from txlbench.errors import UserError
from txlbench.evaluation.scoring import Score, score
from txlbench.files import write_atomically
from txlbench.machine import own_device
from txlbench.reporting.rows import Estimate, estimate

WRONG_VOCABULARY = 0.5
"""An imported model whose perplexity is above this share of its vocabulary knows nothing of the
text: its ids mean something else."""


@dataclass(frozen=True)
class EvalRequest:
    """A call of `eval`; None stands for the row's own setting.

    Attributes:
        corpus: a catalogue's name or a text; the corpus it was trained on if neither this nor
            `tokens` is given.
        level: what a token of a text is, where `corpus` is one.
        tokens: a 1-D .npy file of token ids; all but the first are scored.
        split: of the corpus, or all of it; of a text of the user's own all if not given.
        whole: every target of the split is scored, not as many as the row's evaluate.tokens.
        attention_lengths: numbers of keys a query sees; empty for the regime of training.
        losses: where each target's loss goes, as .npz.
    """

    model: str
    corpus: str | None = None
    level: Level | None = None
    tokens: Path | None = None
    split: Part | None = None
    whole: bool = False
    batch_size: int | None = None
    tgt_len: int | None = None
    mem_len: int | None = None
    attention_lengths: tuple[int, ...] = ()
    clamp_len: int | None = None
    rope_scaling: RopeKind | None = None
    sinks: int | None = None
    same_length: bool | None = None
    exact: bool = False
    zero_memory: bool = False
    losses: Path | None = None
    device: str = "auto"
    checkpoint: str = "best"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "tgt_len": 1, "mem_len": 0, "clamp_len": 0, "sinks": 0}
        given = [(name, getattr(self, name), bound) for name, bound in least.items()]
        given += [("attention_lengths", length, 1) for length in self.attention_lengths]
        for name, value, bound in given:
            if value is not None and value < bound:
                raise UserError(
                    f"--{name.replace('_', '-')}: {value} found", f"give at least {bound}"
                )


@dataclass(frozen=True)
class EvalResult:
    """One pass over the text and what it gave.

    Attributes:
        model: the run, where a row of several seeds was asked for.
        text: what was scored.
        suspicion: why the number may mean nothing, None if it looks sound.
    """

    model: str
    measurement: Measurement
    score: Score
    text: ScoredText
    suspicion: str | None = None


@dataclass(frozen=True)
class SeedMean:
    """The mean over the seeds of a row, with its 95 % t-interval.

    Attributes:
        unit: bpc or ppl, in which the mean is taken as the result table takes it.
    """

    measurement: Measurement
    unit: str
    estimate: Estimate


def seed_means(results: Sequence[EvalResult]) -> list[SeedMean]:
    """Takes the mean over seeds for each measurement and unit; none for a single run."""
    if len({result.model for result in results}) < 2:
        return []
    groups: dict[str, list[EvalResult]] = {}
    for result in results:
        groups.setdefault(result.measurement.key, []).append(result)
    found = []
    for group in groups.values():
        for unit in group[0].text.units:
            mean = estimate([displayed(each.score.loss, unit) for each in group])
            assert mean is not None
            found.append(SeedMean(group[0].measurement, unit, mean))
    return found


def evaluate(request: EvalRequest) -> list[EvalResult]:
    """Scores the text once for each attention length, or once in the regime of training.

    A row of several seeds gives the results of each, seed after seed.

    Raises:
        UserError: if model and text do not fit, or settings exclude each other.
    """
    refs = resolve_seeds(request.model, request.checkpoint)
    passes = len(refs) * len(set(request.attention_lengths) or {0})
    if request.losses is not None and passes > 1:
        raise UserError(f"--losses {request.losses}: {passes} passes were asked for", "ask for one")
    results = [result for ref in refs for result in _evaluate(request, ref)]
    if request.losses is not None:
        _write_losses(request.losses, results[0].score)
    return results


def _evaluate(request: EvalRequest, ref: ModelRef) -> list[EvalResult]:
    device = own_device(request.device)
    text = _text(request, ref)
    if ref.pretrained is not None:
        return _evaluate_windows(request, ref, text, device)
    loaded = ref.load(device, request.precision)
    settings = loaded.settings
    measurements = _measurements(request, settings, text)
    results = []
    for measurement in measurements:
        depth, keep = settings.model.depth, request.losses is not None
        scored = score(loaded.model, text.ids, measurement, depth, device, keep_losses=keep)
        suspicion = _suspicion(request, ref, scored) or _memory_remark(request, settings)
        results.append(EvalResult(ref.reference, measurement, scored, text, suspicion))
    return results


def _evaluate_windows(
    request: EvalRequest, ref: ModelRef, text: ScoredText, device: torch.device
) -> list[EvalResult]:
    """Scores the text with a pretrained model."""
    measurements = window_measurements(request, ref, text)
    loaded, keep = ref.load(device, request.precision), request.losses is not None
    return [
        EvalResult(ref.reference, one, score_pretrained(loaded, text, one, device, keep), text)
        for one in measurements
    ]


def _text(request: EvalRequest, ref: ModelRef) -> ScoredText:
    if request.tokens is not None:
        for option in ("corpus", "level", "split"):
            if getattr(request, option) is not None:
                raise UserError(f"--tokens and --{option} exclude each other", "drop one of them")
        return ScoredText("all", read_ids(request.tokens, ref.capabilities.vocabulary_size))
    split = request.split
    if split is None and request.corpus is None and ref.trained is not None:
        split = ref.trained.evaluate.split
    instead = ", or --tokens with its own ids"
    return read_text(ref, request.corpus, request.level, split, instead)


def _suspicion(request: EvalRequest, ref: ModelRef, scored: Score) -> str | None:
    """The reason to doubt an imported model's loss, if there is one.

    On a corpus it is an error, since the corpus chose the ids; on ids that the user gave it is
    worth a warning only.
    """
    problem = wrong_vocabulary(ref, scored.loss)
    if problem is not None and request.tokens is None:
        raise UserError(problem, "give --tokens with the ids that the model was trained on")
    return problem


def _memory_remark(request: EvalRequest, settings: Settings) -> str | None:
    """What --mem-len means for a model that was trained without a memory of that kind."""
    model = settings.model
    if not request.mem_len or segments_of(settings).recurrence:
        return None
    if model.is_recurrent:
        return f"--mem-len: {model.name} has no memory but a state, which is carried on"
    if not model.has_coherent_memory:
        return (
            f"--mem-len: {model.name} has no memory, as its positions begin anew in every segment; "
            "what it is given here has positions of other tokens"
        )
    return None


def wrong_vocabulary(ref: ModelRef, loss: float) -> str | None:
    """A sentence on an imported model that knows nothing of the text; None for any other."""
    perplexity, size = displayed(loss, "ppl"), ref.capabilities.vocabulary_size
    own = ref.trained is not None or ref.pretrained is not None  # which brings its tokenizer
    if own or not perplexity > WRONG_VOCABULARY * size:  # NaN is told elsewhere
        return None
    return (
        f"{ref.reference}: perplexity {perplexity:,.0f} of a vocabulary of {size:,}; "
        "wrong vocabulary?"
    )


def _measurements(request: EvalRequest, settings: Settings, text: ScoredText) -> list[Measurement]:
    """One pass a length, or one in the regime of training; as the result table measures it."""
    _refuse_what_excludes(request, settings)
    config = _as_asked(request, settings)
    if request.attention_lengths:
        lengths = dict.fromkeys(request.attention_lengths)
        passes = [at_attention_length(config, text.split, length) for length in lengths]
    else:
        passes = [_in_regime(request, config, text.split)]
    return [
        one.model_copy(
            update={
                "exact": request.exact,
                "zero_memory": request.zero_memory and one.regime == "streaming",
            }
        )
        for one in passes
    ]


def _as_asked(request: EvalRequest, settings: Settings) -> Settings:
    """The row's settings with those of the user in their places."""
    is_own_text = request.corpus is None and request.tokens is None
    asked = {
        "tokens": settings.evaluate.tokens if is_own_text and not request.whole else None,
        "batch_size": request.batch_size or settings.evaluate.batch_size,
        "tgt_len": request.tgt_len or settings.evaluate.tgt_len,
    }
    for key in ("clamp_len", "rope_scaling", "sinks"):
        if (given := getattr(request, key)) is not None:
            asked[key] = given
    changed: dict[str, object] = {"evaluate": settings.evaluate.model_copy(update=asked)}
    if request.tgt_len is not None and settings.train is not None:
        changed["train"] = settings.train.model_copy(update={"tgt_len": request.tgt_len})
    return settings.model_copy(update=changed)


def _in_regime(request: EvalRequest, config: Settings, split: Part) -> Measurement:
    """The regime of training, with the memory and the span that were asked for."""
    one = training_regime(config, split)
    mem_len = one.mem_len if request.mem_len is None else request.mem_len
    same_length = one.same_length if request.same_length is None else request.same_length
    if same_length and mem_len == 0:
        raise UserError("--same-length: needs a memory", "give --mem-len of at least 1")
    changes: dict[str, object] = {"mem_len": mem_len, "same_length": same_length}
    changes["rope"] = rope_scaling(config, mem_len if same_length else mem_len + one.tgt_len)
    if mem_len != one.mem_len:
        changes["clamp_len"] = evaluation_clamp(config)
    if mem_len:
        changes |= {"regime": "streaming", "stride": one.tgt_len}
    if request.clamp_len is not None:
        changes["clamp_len"] = request.clamp_len
    sinks = one.sinks if request.sinks is None else request.sinks
    changes["sinks"] = min(sinks, max(0, mem_len - 1))
    return one.model_copy(update=changes)


def _refuse_what_excludes(request: EvalRequest, settings: Settings) -> None:
    kind, recurrent = settings.model.name, settings.model.is_recurrent
    if settings.model.kind == "hf":
        if request.mem_len and settings.train is not None and not settings.train.recurrence:
            raise UserError(
                f"--mem-len: {kind} was trained without memory, and transformers' was not tried",
                "drop the option",
            )
        if request.zero_memory:
            raise UserError(f"--zero-memory: {kind} is not of this suite", "drop the option")
    if request.clamp_len is not None and not settings.model.clamps:
        raise UserError(f"--clamp-len: {kind} has no distances to clamp", "drop the option")
    if request.rope_scaling is not None and kind != "rope":
        raise UserError(f"--rope-scaling: goes with encoding rope, not {kind}", "drop the option")
    if request.attention_lengths and request.same_length is False:
        raise UserError(
            "--no-same-length: an attention length is the same for every query", "drop one of them"
        )
    if request.attention_lengths and request.mem_len is not None:
        raise UserError("--attention-lengths and --mem-len exclude each other", "drop one of them")
    if request.attention_lengths and recurrent:
        raise UserError(f"--attention-lengths: {kind} has no attention", "drop the option")
    if request.exact and recurrent:
        raise UserError(
            f"--exact: the state of {kind} reaches back without limit", "use --batch-size 1"
        )
    memory = settings.model.memory
    if request.exact and memory != "xl":
        raise UserError(
            f"--exact: memory {memory} reaches back without limit", "use --batch-size 1"
        )
    if request.zero_memory and memory != "xl":
        raise UserError(f"--zero-memory: not with memory {memory}", "drop the option")
    if request.sinks and (
        settings.model.kind != "transformer" or not settings.model.remembers_inputs
    ):
        raise UserError(f"--sinks: not with {kind} and memory {memory}", "drop the option")
    if request.zero_memory and recurrent:
        raise UserError("--zero-memory: is for attention", "drop the option")


def _write_losses(path: Path, scored: Score) -> None:
    assert scored.losses is not None
    assert scored.positions is not None
    losses, positions = scored.losses, scored.positions
    try:
        write_atomically(path, lambda file: np.savez(file, losses=losses, positions=positions))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "choose another place") from error

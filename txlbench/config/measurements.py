"""The measurements of a trained model: training regime, attention lengths, positions.

Evaluation computes a `Measurement`, reporting looks its record up by `key`; both take the list
from here, so that they cannot disagree on how a number was obtained.
"""

from types import MappingProxyType
from typing import Literal

from txlbench.config.base import AttentionSpan, Part, RopeScaling, Section, Split
from txlbench.config.identity import fingerprint, hashed_fields
from txlbench.config.run_config import ImportedConfig, RunConfig
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError

Settings = RunConfig | ImportedConfig
"""What is known of how a model was trained, or how its source evaluates it."""


class Measurement(Section):
    """One pass over a split that gives a mean loss; every field is part of how it was obtained.

    Attributes:
        regime: streaming (segments with memory) or windows (each starts without memory).
        tgt_len: tokens a segment or window.
        stride: tokens by which segments or windows move on; a window scores its last `stride`
            positions, the first one all.
        mem_len: cached states each layer attends to; 0 for windows.
        same_length: every query sees exactly mem_len keys, itself included.
        attention_length: the length swept, None in the training regime.
        clamp_len: distances beyond it count as clamp_len.
        rope: how rotary positions are scaled; None for as trained, and for other encodings.
        sinks: of the mem_len states, how many are the first of the stream.
        batch_size: streams, and in windows the windows, evaluated at once.
        tokens: targets scored, in batch_size blocks spread evenly over the split, each after a
            lead-in of mem_len tokens; None for all targets, each stream starting cold.
        exact: streams are warmed by all tokens that can reach their first target, so that the
            number does not depend on batch_size.
        zero_memory: streams begin with a memory of zeros that is attended to, as the official
            TensorFlow code and Hugging Face's do, instead of an empty one.
    """

    ADDED = MappingProxyType({"zero_memory": False, "rope": None, "sinks": 0})

    regime: Literal["streaming", "windows"]
    split: Part
    tgt_len: int
    stride: int
    mem_len: int = 0
    same_length: bool = False
    attention_length: int | None = None
    clamp_len: int | None = None
    rope: RopeScaling | None = None
    sinks: int = 0
    batch_size: int = 10
    tokens: int | None = None
    exact: bool = False
    zero_memory: bool = False

    @property
    def span(self) -> AttentionSpan:
        """How far the model attends; without memory it has no other length than the window's."""
        return AttentionSpan(
            mem_len=self.mem_len,
            clamp_len=self.clamp_len,
            same_length=self.same_length,
            rope=self.rope,
            sinks=self.sinks,
        )

    @property
    def key(self) -> str:
        """A file name: readable, and distinct for distinct measurements."""
        length = f"a{self.attention_length}" if self.attention_length else f"t{self.tgt_len}"
        return f"{self.split}-{self.regime}-{length}-{fingerprint(hashed_fields(self))}"


def check_length(measurement: Measurement, predictions: int) -> None:
    """Refuses (UserError) an attention length that no prediction of the split can have."""
    length = measurement.attention_length
    if length is not None and length > predictions:
        raise UserError(
            f"attention length {length:,}: split {measurement.split} has {predictions:,} "
            "predictions only",
            f"use at most {predictions:,}",
        )


def segments_of(config: Settings) -> TrainConfig | ImportedConfig:
    """Segments and memory: as trained, or as the source of an imported model evaluates."""
    return config if isinstance(config, ImportedConfig) else config.train


def training_span(config: Settings) -> AttentionSpan:
    """How far the model attends in training; half loss makes segments overlap."""
    train, model = segments_of(config), config.model
    return AttentionSpan(
        mem_len=train.memory,
        clamp_len=model.clamp_len,
        same_length=model.same_length,
        stride=train.stride,
        sinks=model.span_sinks if train.memory else 0,
    )


def distance_met(config: RunConfig) -> int | None:
    """The largest distance that training met at least half as often as distance 1; None if none.

    Distances are those from a query to its keys, counted over the trained targets of a segment
    with full memory. A segment of L tokens without memory meets distance d L - d times, one with a
    memory of M every d <= M L times. How far a model uses context follows how often it met a
    distance rather than the longest one (An et al. 2024). Recurrent state has no distances.
    """
    train, model = config.train, config.model
    if model.is_recurrent:
        return None
    first = train.tgt_len - train.stride if not train.aux_positions else 0
    window = (
        train.memory - 1 if model.same_length and train.memory else train.memory + train.tgt_len
    )
    reaches = [min(query + train.memory, window) for query in range(first, train.tgt_len)]
    met = sorted((reach for reach in reaches if reach >= 1), reverse=True)
    return met[(len(met) - 1) // 2] if met else None


def training_regime(config: Settings, split: Part) -> Measurement:
    """PPL init: segment and memory as trained; without recurrence windows as trained."""
    train, evaluate = segments_of(config), config.evaluate
    return Measurement(
        regime="streaming" if train.recurrence else "windows",
        split=split,
        tgt_len=train.tgt_len,
        stride=train.tgt_len if train.recurrence else train.stride,
        mem_len=train.memory,
        same_length=config.model.same_length,
        clamp_len=config.model.clamp_len,
        sinks=config.model.span_sinks if train.recurrence else 0,
        batch_size=evaluate.batch_size,
        tokens=evaluate.tokens,
    )


def by_position(config: RunConfig, split: Split) -> Measurement:
    """Segments laid end to end as a model meets them, so that each position is scored."""
    return training_regime(config, split).model_copy(update={"stride": config.train.tgt_len})


def evaluation_clamp(config: Settings) -> int | None:
    """clamp_len at attention lengths other than the trained one: evaluate's, else the model's.

    None where there is no distance to clamp, as in rope and in architectures of transformers.
    """
    if not config.model.clamps:
        return None
    asked = config.evaluate.clamp_len
    return config.model.clamp_len if asked is None else asked


def rope_scaling(config: Settings, keys: int) -> RopeScaling | None:
    """How rotary positions are scaled where a query sees up to so many keys; None for not at all.

    Only beyond the keys met in training; by keys over those, unless the factor is given.
    """
    train, asked = segments_of(config), config.evaluate
    if asked.rope_scaling is None:
        return None
    trained = train.memory if config.model.same_length else train.tgt_len + train.memory
    factor = asked.rope_factor or keys / trained
    if keys <= trained or factor == 1.0:
        return None
    return RopeScaling(kind=asked.rope_scaling, factor=factor, trained=trained)


def window_rope(config: Settings | None, keys: int) -> RopeScaling | None:
    """How rotary positions are scaled in windows whose last query sees so many keys.

    All contexts of a window share it, as they are read in one pass. None without settings.
    """
    return None if config is None else rope_scaling(config, keys)


def at_attention_length(config: Settings, split: Part, length: int) -> Measurement:
    """Every query sees `length` keys, itself included.

    With recurrence exactly so (the official `--mem_len A --same_length`); without, the last
    `stride` positions of windows of that length, the first window all.
    """
    train, evaluate, clamp = segments_of(config), config.evaluate, evaluation_clamp(config)
    rope = rope_scaling(config, length)
    if train.recurrence:
        tgt_len = evaluate.tgt_len or train.tgt_len
        sinks = config.model.span_sinks if evaluate.sinks is None else evaluate.sinks
        return Measurement(
            regime="streaming",
            split=split,
            tgt_len=tgt_len,
            stride=tgt_len,
            mem_len=length,
            same_length=True,
            attention_length=length,
            clamp_len=clamp,
            rope=rope,
            sinks=min(sinks, length - 1),
            batch_size=evaluate.batch_size,
            tokens=evaluate.tokens,
        )
    return Measurement(
        regime="windows",
        split=split,
        tgt_len=length,
        stride=min(length, evaluate.stride or max(1, length // 4)),
        attention_length=length,
        clamp_len=clamp,
        rope=rope,
        batch_size=evaluate.batch_size,
        tokens=evaluate.tokens,
    )


def attention_lengths(config: RunConfig) -> tuple[int, ...]:
    """The lengths swept: those asked for, or the one trained with; none the model cannot do.

    A recurrent kind has no attention length: its state holds all that came before.
    """
    if config.model.is_recurrent:
        return ()
    as_trained = config.train.memory if config.train.recurrence else config.train.tgt_len
    asked = config.evaluate.attention_lengths or (config.evaluate.mem_len or as_trained,)
    limit = None if config.train.recurrence else config.model.learned_positions
    if limit is None:
        return asked
    return tuple(length for length in asked if length <= limit) or (limit,)


def skipped_lengths(config: RunConfig) -> tuple[int, ...]:
    """The lengths asked for that this model has no positions for."""
    if config.model.is_recurrent:
        return ()
    done = attention_lengths(config)
    return tuple(length for length in config.evaluate.attention_lengths if length not in done)


def all_measurements(config: RunConfig) -> list[Measurement]:
    """Everything a run's results need, each once: regime, sweep and positions."""
    split = config.evaluate.split
    splits: list[Split] = ["valid"] if split == "valid" else ["valid", split]
    wanted = [*(training_regime(config, each) for each in splits), by_position(config, split)]
    wanted += [
        at_attention_length(config, each, length)
        for each in splits
        for length in attention_lengths(config)
    ]
    return list({measurement.key: measurement for measurement in wanted}.values())

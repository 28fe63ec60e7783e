"""What the findings hold: recl.json, truth.json, speed.json and bench.json.

One frozen model a file, which the measuring verb builds and writes, and which tables, figures and
MLflow read. Losses are in nats, times in seconds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, FiniteFloat, JsonValue, NonNegativeInt, PositiveInt, field_validator

from txlbench.config.benchmarks import Work
from txlbench.errors import UserError
from txlbench.records.schema import Record, Seconds, read_record

F = TypeVar("F", bound="Finding")
Positive = Annotated[FiniteFloat, Field(gt=0)]


class Finding(Record):
    """The result of a verb other than `ablate`.

    Attributes:
        schema_id: names the shape of the file; a file of another one is refused.
        command: what was typed to measure it.
    """

    SCHEMA: ClassVar[str]

    schema_id: str = Field(alias="schema")
    commit: str | None
    command: str = ""

    @field_validator("schema_id")
    @classmethod
    def _is_known(cls, found: str) -> str:
        if found != cls.SCHEMA:
            raise ValueError(f"{found!r} found; {cls.SCHEMA} is read; make the file anew")
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should keep a reader from believing too much, each once."""
        return ()

    @property
    def provenance(self) -> str:
        """Commit and command, for the end of a line that names the source."""
        return f"commit {self.commit or 'unknown'}; command: {self.command}"


class BlockCount(Record):
    """How many blocks of how many consecutive positions were resampled together."""

    count: int
    positions: int


class ScoredPositions(Record):
    """Where the tokens lie in their split: every `step`-th of a number of stretches."""

    first: int
    last: int
    step: PositiveInt
    stretches: PositiveInt


class Baseline(Record):
    """exp f(c, c) of every step's shorter context c, a perplexity, over the share `r` of tokens."""

    r: FiniteFloat
    perplexity: tuple[FiniteFloat, ...]


class ReclResult(Record):
    """RECL of one model over the hardest share `r` of tokens, and every step of its walk."""

    model: str
    r: FiniteFloat
    recl: int
    capped: bool
    limited_by: Literal["longest"] | None
    gains: tuple[FiniteFloat, ...]
    differences: tuple[FiniteFloat, ...]
    net_gains: tuple[FiniteFloat, ...]
    p: tuple[FiniteFloat, ...]
    recl_above_null: int
    interval: tuple[int, int]
    shares: dict[str, FiniteFloat]
    interval_above_null: tuple[int, int]
    shares_above_null: dict[str, FiniteFloat]
    paper: int | float | str | None = None


class Subgroup(Record):
    """The paper's RECL of `model` where the baseline is that of `models` only."""

    models: tuple[str, ...]
    model: str
    r: FiniteFloat
    recl: int
    capped: bool


class Sensitivity(Record):
    """Both RECLs as they are under another choice, which `setting` names."""

    setting: str
    model: str
    r: FiniteFloat
    recl: int
    recl_above_null: int


class ReclGroup(Record):
    """Models that share a baseline.

    Attributes:
        name: a letter, empty where there is one group only; not in the file.
        losses: mean loss at each context, by model.
        loss_errors: their standard errors, from the same blocks of tokens as the null's.
        ecl: effective context length (Khandelwal et al. 2018) by model.
    """

    models: tuple[str, ...]
    longest: tuple[int | None, ...]
    tokens: int
    positions: ScoredPositions | None = None
    blocks: BlockCount
    losses: dict[str, tuple[FiniteFloat, ...]]
    loss_errors: dict[str, tuple[FiniteFloat, ...]] = Field(default_factory=dict)
    baselines: tuple[Baseline, ...]
    warnings: tuple[str, ...]
    results: tuple[ReclResult, ...]
    subgroups: tuple[Subgroup, ...]
    sensitivity: tuple[Sensitivity, ...]
    ecl: dict[str, int]
    name: str = Field(default="", exclude=True)

    def result(self, model: str, r: float) -> ReclResult:
        """The result of one model and share."""
        return next(line for line in self.results if (line.model, line.r) == (model, r))

    def baseline(self, r: float) -> tuple[float, ...]:
        """The shared baseline of every step, a perplexity."""
        return next(line.perplexity for line in self.baselines if line.r == r)


class SeedEstimate(Record):
    """RECL of a row over its seeds, for one share: means with 95 % t-intervals.

    Attributes:
        row: as the user calls it.
        runs: its models, one a seed; each is measured in a group of its own.
        recl, recl_above_null: mean and half the width of the interval, in tokens.
    """

    row: str
    runs: tuple[str, ...]
    r: FiniteFloat
    recl: tuple[FiniteFloat, FiniteFloat]
    recl_above_null: tuple[FiniteFloat, FiniteFloat]


class ReclSource(Record):
    """Where the losses of a model come from."""

    reference: str
    path: str | None
    corpus: str | None
    split: str | None
    vocabulary: str | None
    model: str | None
    longest: int | None
    settings: dict[str, JsonValue]


class ReclRecord(Finding):
    """recl.json.

    Attributes:
        level: of the sign-flip test.
        r: shares of tokens that are the hardest.
        unit: of losses; bpb where models with several tokenizers were scored on the same bytes.
    """

    SCHEMA = "txlbench.recl/1"

    threshold: FiniteFloat
    level: FiniteFloat
    contexts: Annotated[tuple[int, ...], Field(min_length=2)]
    r: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    seed: int
    unit: Literal["bpc", "bpb", "ppl"]
    models: dict[str, ReclSource]
    groups: Annotated[tuple[ReclGroup, ...], Field(min_length=1)]
    seeds: tuple[SeedEstimate, ...] = ()

    @property
    def counted_in(self) -> str:
        """What contexts are counted in."""
        return "bytes" if self.unit == "bpb" else "tokens"

    @property
    def targets(self) -> str:
        """What was scored: tokens, or units of text between boundaries that tokenizers share."""
        return "units" if self.unit == "bpb" else "tokens"

    def named_groups(self) -> Iterator[ReclGroup]:
        """The groups, with letters where there are several."""
        for index, group in enumerate(self.groups):
            letter = chr(ord("a") + index % 26) if len(self.groups) > 1 else ""
            yield group.model_copy(update={"name": letter})

    @property
    def warnings(self) -> tuple[str, ...]:
        found = (warning for group in self.groups for warning in group.warnings)
        return tuple(dict.fromkeys(found))


class Streaming(Record):
    """The loss in the regime of training, and the optimum of the same tokens."""

    loss: FiniteFloat
    optimum: Positive
    tokens: int


class TruthRecl(Record):
    """Measured RECL beside the RECL above the null of the known losses, `true`."""

    r: FiniteFloat
    recl: int
    recl_above_null: int
    true: int


class TruthRow(Record):
    """A row of the experiment: measured losses at each context, and the lowest possible ones."""

    label: str
    run: str
    seed: int
    mem_len: int
    memory_reset: FiniteFloat
    valid_loss: FiniteFloat
    tokens: int
    streaming: Streaming
    losses: tuple[FiniteFloat, ...]
    known: tuple[Positive, ...]
    recl: tuple[TruthRecl, ...]


class TruthRecord(Finding):
    """truth.json."""

    SCHEMA = "txlbench.truth/1"

    contexts: tuple[int, ...]
    r: tuple[FiniteFloat, ...]
    threshold: FiniteFloat
    rows: Annotated[tuple[TruthRow, ...], Field(min_length=1)]


class Rate(Record):
    """What repeated timings came to: tokens a second, unless a subclass says otherwise."""

    median: Positive
    min: Positive
    max: Positive


class Spread(Rate):
    """Seconds a token, or a ratio of them, with quartiles."""

    lower_quartile: Positive
    upper_quartile: Positive


class SpeedResult(Record):
    """A model read in one way at one attention length.

    Attributes:
        tgt_len: tokens a segment where state is reused; None for a sliding window.
        speedup: over the sliding window of the baseline.
        paper: the speedup that the paper gives.
    """

    model: str
    regime: Literal["window", "reuse"]
    attention_length: PositiveInt
    tgt_len: PositiveInt | None
    seconds_per_token: Spread
    speedup: Spread
    paper: int | float | None


class SpeedSource(Record):
    """A model that was timed."""

    reference: str
    name: str
    parameters: NonNegativeInt


class SpeedRecord(Finding):
    """speed.json."""

    SCHEMA = "txlbench.speed/1"

    device: str
    machine: str
    threads: PositiveInt
    torch: str
    precision: str
    batch_size: PositiveInt
    rounds: PositiveInt
    warm_up: NonNegativeInt
    attention_lengths: tuple[PositiveInt, ...]
    baseline: str
    models: dict[str, SpeedSource]
    results: Annotated[tuple[SpeedResult, ...], Field(min_length=1)]


class BenchResult(Record):
    """One workload; `matmul_share` is its share of the machine's rate of matrix products.

    Attributes:
        attention: on which path it was computed (`AttentionPath`, or sdpa beside a KV
            cache); None in earlier records.
        warning: why it is not fused where it could be.
    """

    work: Work
    size: str
    dtype: str
    batch_size: PositiveInt
    tgt_len: PositiveInt
    mem_len: NonNegativeInt
    tokens_per_second: Rate
    matmul_share: Positive | None
    peak_memory_bytes: NonNegativeInt
    attention: str | None = None
    warning: str | None = None

    @property
    def workload(self) -> tuple[str, str, str, int]:
        """What makes results of two files the same work."""
        return self.work, self.size, self.dtype, self.mem_len


class BenchTiming(Record):
    """What the process of one workload measured; `device_name` is None for a CPU."""

    tokens_per_second: Rate
    matmul_gflops: Positive
    matmul_share: Positive | None
    peak_memory_bytes: NonNegativeInt
    device_name: str | None
    attention: str | None = None
    warning: str | None = None


class BenchMachine(Record):
    """Where it was measured."""

    processor: str
    device: str
    threads: PositiveInt
    system: str = ""
    torch: str


class EarlierBench(Record):
    """What an earlier bench.json measured, as the history of a later one keeps it."""

    commit: str | None
    time: Seconds | None = None
    machine: BenchMachine
    matmul_gflops: dict[str, Positive]
    results: tuple[BenchResult, ...]

    def median(self, like: BenchResult) -> float | None:
        """Tokens a second at the same work here; None if it was not timed."""
        same = (own for own in self.results if own.workload == like.workload)
        return next((own.tokens_per_second.median for own in same), None)


class BenchRecord(Finding):
    """bench.json; rates of matrix products in GFLOP/s by dtype.

    Attributes:
        time: when it was measured, in seconds since 1970; None in earlier records.
        history: what `--against` had measured, and its own history before it, oldest first.
    """

    SCHEMA = "txlbench.bench/1"

    machine: BenchMachine
    time: Seconds | None = None
    history: tuple[EarlierBench, ...] = ()
    contexts: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    rounds: PositiveInt
    matmul_gflops: dict[str, Positive]
    results: Annotated[tuple[BenchResult, ...], Field(min_length=1)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.warning for each in self.results if each.warning))

    @property
    def summary(self) -> EarlierBench:
        """What later records keep of this one."""
        kept = EarlierBench.model_fields.keys()
        return EarlierBench(**{name: value for name, value in self if name in kept})


def read_finding(path: Path, kind: type[F]) -> F:
    """The finding at `path`; UserError if it cannot be read or is none of this kind."""
    try:
        return read_record(path, kind)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give a file that can be read") from None

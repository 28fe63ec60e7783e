"""The shape of what `--dry-run --format json` prints: each run, and the totals."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from txlbench.records.schema import RunState
from txlbench.runs.plan import Need

SCHEMA = "txlbench.plan/2"
HERE = "this machine"
"""Its name among accelerators."""


class AcceleratorEstimate(BaseModel):
    """A run on one accelerator: training in `precision`, evaluation in float32.

    Attributes:
        utilisation: share of the peak rate that is reached.
        memory_bytes: the device's memory that training takes; None if no formula knows it.
        memory_fits: whether the accelerator has as much.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    precision: str
    utilisation: float
    hours: float
    memory_bytes: int | None
    memory_fits: bool | None


class ProbeEstimate(BaseModel):
    """A run on this machine, from a few steps that were timed.

    Attributes:
        memory_bytes: the measured peak of the process, or of the CUDA device.
    """

    model_config = ConfigDict(frozen=True)

    step_seconds: float
    steps: int
    precision: str
    threads: int
    device: str
    memory_bytes: int
    training_hours: float
    evaluation_hours: float | None
    hours: float


class PlanEntry(BaseModel):
    """One run of a plan; what is unknown is None, with the reason in `unknown`.

    Attributes:
        stale: why the run that is on disk does not count; empty if it does, or there is none.
        copied_from: where the run is trained already, in another experiment; else empty.
        train_tokens: targets that training predicts.
        train_flops: floating-point operations of the whole training, validations apart.
        evaluation_flops: those of the validations and of every measurement of the results.
        estimated_seconds: training time at the speed of the slowest trained run of the experiment.
        estimated_bytes: disk space of its checkpoints.
        memory_bytes: by precision (fp32, bf16), each term of the memory that training takes on
            a CPU, and the total (`config.memory_use`).
        accelerators: hours and memory on those that were asked for.
        probe: hours and memory on this machine, if it was probed.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    label: str
    labels: tuple[str, ...]
    seed: int
    state: RunState
    need: Need
    stale: str
    copied_from: str
    parameters: int | None
    train_tokens: int
    train_flops: int | None
    evaluation_flops: int | None
    estimated_seconds: float | None
    estimated_bytes: int | None
    memory_bytes: dict[str, dict[str, int]] | None
    accelerators: tuple[AcceleratorEstimate, ...]
    probe: ProbeEstimate | None
    unknown: dict[str, str]


class PlanTotal(BaseModel):
    """The sums over the runs that need training; None where one of them is unknown.

    Attributes:
        hours: by accelerator, one run after the other on one device; `this machine` if probed,
            with `jobs` runs at once.
    """

    model_config = ConfigDict(frozen=True)

    runs: int
    train_tokens: int
    train_flops: int | None
    evaluation_flops: int | None
    estimated_bytes: int | None
    largest_memory_bytes: dict[str, int] | None
    hours: dict[str, float | None]


class TuningCost(BaseModel):
    """What `--tune-trials` trains before the rows, at most; the winners are among it.

    Attributes:
        trials: of each row.
        runs: of all rows, with one seed, at the sizes of the rows as they stand.
        hours: by accelerator, one run after the other; training alone.
    """

    model_config = ConfigDict(frozen=True)

    trials: int
    runs: int
    train_tokens: int
    train_flops: int | None
    hours: dict[str, float]


class PlanRecord(BaseModel):
    """What `--dry-run --format json` prints."""

    model_config = ConfigDict(frozen=True)

    schema_id: str = Field(SCHEMA, serialization_alias="schema")
    runs: tuple[PlanEntry, ...]
    total: PlanTotal
    tuning: TuningCost | None = None

    def with_tuning(self, trials: int) -> "PlanRecord":
        """The same with the cost of tuning each row by `trials` trainings of its first seed."""
        first: dict[str, PlanEntry] = {}
        for entry in self.runs:
            first.setdefault(entry.label, entry)
        flops = sum_known([entry.train_flops for entry in first.values()])
        hours: dict[str, float] = {}
        for entry in first.values():
            for each in entry.accelerators:
                hours[each.name] = hours.get(each.name, 0.0) + trials * each.hours
        tuning = TuningCost(
            trials=trials,
            runs=trials * len(first),
            train_tokens=trials * sum(entry.train_tokens for entry in first.values()),
            train_flops=None if flops is None else trials * flops,
            hours=hours,
        )
        return self.model_copy(update={"tuning": tuning})


def sum_known(values: Sequence[int | None]) -> int | None:
    """The sum; None if one of the values is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

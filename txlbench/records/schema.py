"""Reading a JSON file of a schema that this version writes.

The states a run can be in.

What the JSON files of a run must hold, as far as their readers rely on it.

Files come from other machines and from strangers, so each is held against its shape when it is
read; a key may be missing, and what is not listed here is taken as it is.

What the evaluation of one run came to, read from its summary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from txlbench.config.base import Split
from txlbench.config.loading import Document, refusal
from txlbench.config.measurements import Measurement
from txlbench.config.run_config import EvaluateConfig
from txlbench.errors import UserError


class RunState(StrEnum):
    """What became of a run so far; `status.json` holds it."""

    QUEUED = "queued"  # no status file yet
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # continues at the next call
    TRAINED = "trained"  # evaluations are missing
    FINISHED = "finished"
    FAILED = "failed"
    DIVERGED = "diverged"
    IMPORTED = "imported"
    DAMAGED = "damaged"  # never written: a file of the run cannot be read

    @property
    def is_bad(self) -> bool:
        """Whether the run ended without the numbers that were asked for."""
        return self in (RunState.FAILED, RunState.DIVERGED, RunState.DAMAGED)


R = TypeVar("R", bound="Record")
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[FiniteFloat, Field(ge=0, lt=1e11)]


class Record(BaseModel):
    """A JSON object as a file holds it; keys that are not listed are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    @property
    def content(self) -> dict[str, Any]:
        """The object as plain data, in the order of the file; what was not given is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Fault(Record):
    """What ended a run."""

    type: str = ""
    message: str = ""
    where: str = ""


class Status(Record):
    """`status.json`."""

    state: str = ""
    attempts: Count = 0
    started: Seconds = 0.0
    updated: Seconds = 0.0
    pid: int = 0
    host: str = ""
    error: Fault = Fault()
    notes: list[str] = []


class CorpusFacts(Record):
    """The corpus that a run was trained on."""

    checksum: str = ""
    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)] = 1
    unigram_loss: dict[Split, FiniteFloat] = {}


class Facts(Record):
    """`facts.json`."""

    commit: str | None = None
    parameters: Count = 0
    corpus: CorpusFacts = CorpusFacts()


class Training(Record):
    """How the training went, in the summary."""

    steps: Count = 0
    targets_trained: Count = 0
    seconds: Seconds = 0.0
    tokens_per_second: FiniteFloat = 0.0


class EvaluationResult(Record):
    """Final numbers under one evaluation section; reports read them more closely."""

    evaluate: dict[str, Any]


class Summary(Record):
    """`summary.json`."""

    training: Training = Training()
    results: list[EvaluationResult] = []


class EvaluationRecord(Record):
    """A file of `evaluations/`."""

    measurement: dict[str, Any]
    loss: FiniteFloat


class Line(Record):
    """A line of `metrics.jsonl` or `timings.jsonl`."""

    __pydantic_extra__: dict[str, FiniteFloat | str | None]
    step: Count
    tokens: Count = 0
    train_loss: FiniteFloat = 0.0
    valid_loss: FiniteFloat = 0.0
    time: Seconds = 0.0
    seconds: Seconds = 0.0
    tokens_per_second: FiniteFloat = 0.0


def read_record(path: Path, model: type[R]) -> R:
    """The record in `path`.

    Raises:
        UserError: if the file is not JSON or does not fit, naming path, key and value.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as errors:
        error = errors.errors()[0]
        if error["type"] == "json_invalid":
            problem = f"{path}: not a JSON file ({error['ctx']['error']})"
            raise UserError(problem, "delete it or restore it from a copy") from None
        if not error["loc"] and error["type"] == "model_type":
            problem = f"{path}: not a JSON object"
            raise UserError(problem, "delete it or restore it from a copy") from None
        raise refusal(model, errors, Document(str(path), None)) from None


@dataclass(frozen=True)
class Evaluation:
    """One number and how it was obtained.

    Attributes:
        loss: mean over the scored tokens, nats.
        tokens, dropped: targets of the split that were scored, and that were left out.
        by_position: mean loss at each position of the segment, nats; None where unscored.
    """

    measurement: Measurement
    loss: float
    tokens: int
    dropped: int
    dtype: str
    by_position: tuple[float | None, ...]

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> "Evaluation":
        return cls(
            measurement=Measurement.model_validate(record["measurement"]),
            loss=float(record["loss"]),
            tokens=int(record["tokens"]),
            dropped=int(record.get("dropped", 0)),
            dtype=str(record.get("dtype", "unknown")),
            by_position=tuple(record.get("by_position") or ()),
        )


@dataclass(frozen=True)
class SweepPoint:
    """The loss (nats) on `split` where every query sees `attention_length` keys."""

    attention_length: int
    split: str
    loss: float


@dataclass(frozen=True)
class Outcome:
    """The results of one run under one evaluation section.

    Attributes:
        init: the training regime ("PPL init" in the paper's Table 6).
        best: at `best_length`, which is the best of the sweep on valid ("PPL best").
        attention_length: the shortest length within the tolerance of the best; both lengths are
            None for a model without attention, whose best is its init.
        by_position: segments laid end to end, so that each position is scored.
    """

    init: Evaluation
    best: Evaluation
    best_length: int | None
    attention_length: int | None
    sweep: tuple[SweepPoint, ...]
    by_position: Evaluation

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> "Outcome":
        return cls(
            init=Evaluation.parse(entry["init"]),
            best=Evaluation.parse(entry["best"]),
            best_length=_length(entry["best_length"]),
            attention_length=_length(entry["attention_length"]),
            sweep=tuple(
                SweepPoint(int(point["attention_length"]), point["split"], float(point["loss"]))
                for point in entry["sweep"]
            ),
            by_position=Evaluation.parse(entry["by_position"]),
        )


def _length(value: Any) -> int | None:
    return None if value is None else int(value)


def find_outcome(
    summary: Mapping[str, Any], evaluate: EvaluateConfig, path: Path
) -> Outcome | None:
    """The results obtained under exactly `evaluate`, None if there are none.

    Args:
        path: the summary's file, for messages.

    Raises:
        UserError: if the summary is not shaped as one.
    """
    wanted = evaluate.model_dump(mode="json")
    try:
        entries = [each for each in summary.get("results", ()) if each["evaluate"] == wanted]
        return Outcome.parse(entries[-1]) if entries else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: not a run's summary ({type(error).__name__}: {reason})",
            "delete it and run the experiment again: the run is evaluated, not retrained",
        ) from error

"""What the evaluation of one run came to, read from its summary."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.config.evaluate import EvaluateConfig
from txlbench.config.measurements import Measurement
from txlbench.errors import UserError


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

"""What the JSON files of a run hold: status, facts, evaluations, summary and lines of metrics.

One frozen model a file, which the run builds and writes, and which tables, figures and MLflow read.
Files come from other machines, earlier versions and strangers: a key may be missing where a default
stands, keys that are not listed are kept, and whatever else does not fit is refused with path and
key. Losses are in nats, times in seconds.
"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    PlainSerializer,
    ValidationError,
)

from txlbench.config.base import Split
from txlbench.config.identity import hashed_fields
from txlbench.config.loading import Document, refusal
from txlbench.config.measurements import Measurement
from txlbench.config.run_config import EvaluateConfig
from txlbench.errors import UserError

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

    def without(self, name: str) -> Self:
        """The same object without one of its keys."""
        kept = {key: value for key, value in self.content.items() if key != name}
        return self.model_validate_json(json.dumps(kept))


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


class Failure(Record):
    """What ended a run: the error's type and message, and the place in the code."""

    type: str = "error"
    message: str = ""
    where: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class Status(Record):
    """`status.json`.

    Attributes:
        attempts: how often the run was started.
        notes: what people should know of the latest attempt.
    """

    state: RunState | None = None
    attempts: Count = 0
    started: Seconds | None = None
    pid: int | None = None
    host: str | None = None
    updated: Seconds | None = None
    error: Failure | None = None
    notes: tuple[str, ...] = ()


class TrainedCorpus(Record):
    """The corpus that a run was trained on; counts and losses by split."""

    name: str = ""
    checksum: str | None = None
    level: str = ""
    split_rule: str = ""
    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    vocabulary: str = ""
    tokens: dict[Split, Count] = {}
    unigram_loss: dict[Split, FiniteFloat] = {}
    unknown: dict[Split, Count] = {}
    unk: dict[Split, Count] = {}
    warnings: tuple[str, ...] = ()


AttentionPath = Literal["tiles", "flex", "plain"]
"""How attention is computed: in tiles (on a CPU), by FlexAttention (on a CUDA device), or with
whole scores."""


class AttentionFacts(Record):
    """On which path a training computed attention, and what the self-test of a kernel found.

    Attributes:
        reason: why it is the plain one where a kernel was tested.
        difference: of the fused path's losses or gradients from exact ones, as a share of the
            norm: of the tensor where it is largest beside `allowed`.
        allowed: how far that tensor may be from it.
        seconds: of the test, in which the kernel is compiled too.
    """

    path: AttentionPath
    reason: str | None = None
    difference: FiniteFloat | None = None
    allowed: FiniteFloat | None = None
    seconds: Seconds | None = None


class Facts(Record):
    """`facts.json`: code, machine, corpus and size.

    Attributes:
        attention: on which path it was computed; None in models without, and in earlier records.
        devices: processes that trained it together, at last.
        threads: of each of them.
        precision: of the training's matrix products.
        train_dropped: predictions of the train split that are in no stream.
    """

    commit: str | None = None
    txlbench: str | None = None
    versions: dict[str, str | None] = {}
    device: str | None = None
    device_name: str | None = None
    devices: Count = 1
    threads: Count | None = None
    precision: str | None = None
    attention: AttentionFacts | None = None
    corpus: TrainedCorpus = TrainedCorpus()
    train_dropped: Count | None = None
    parameters: Count | None = None


class TrainingSummary(Record):
    """How the training went; losses are of the validation split."""

    steps: Count = 0
    tokens: Count = 0
    targets_trained: Count | None = None
    best_step: Count | None = None
    best_valid_loss: FiniteFloat | None = None
    final_valid_loss: FiniteFloat | None = None
    seconds: Seconds | None = None
    tokens_per_second: FiniteFloat | None = None


class BlockLosses(Record):
    """Mean losses over equal parts of the scored tokens, in order of position.

    Attributes:
        targets: fingerprint of the set of scored tokens; rows are compared where it is equal.
        losses: of each part, at most 200 of them.
    """

    targets: str
    losses: tuple[FiniteFloat, ...]


class EvaluationRecord(Record):
    """A file of `evaluations/`: one number and how it was obtained.

    Attributes:
        loss: mean over the scored tokens.
        tokens, dropped: targets of the split that were scored, and that were left out.
        cold_starts: streams that began without the memory that a longer text would give.
        by_position: mean loss at each position of the segment; None where unscored.
        errors_by_position: their standard errors; empty in records of earlier versions.
        blocks: losses along the text; None in records of earlier versions.
        checkpoint, step: which weights were measured.
        dtype: number format of the matrix products.
        attention: on which path it was computed: sdpa (PyTorch's kernel beside a KV cache), or
            one of `AttentionPath`; None in models without, and in earlier records.
    """

    measurement: Annotated[Measurement, PlainSerializer(lambda each: each.model_dump(mode="json"))]
    loss: FiniteFloat
    tokens: Count
    dropped: Count = 0
    cold_starts: Count = 0
    by_position: tuple[FiniteFloat | None, ...] = ()
    errors_by_position: tuple[FiniteFloat | None, ...] = ()
    blocks: BlockLosses | None = None
    checkpoint: str = "best"
    step: Count | None = None
    dtype: str = "unknown"
    attention: str | None = None
    device: str | None = None
    seconds: Seconds | None = None


class SweepPoint(Record):
    """The loss on `split` where every query sees `attention_length` keys."""

    attention_length: Count
    split: Split
    loss: FiniteFloat
    tokens: Count = 0


class Outcome(Record):
    """The results of one run under one `evaluate` section.

    Attributes:
        init: the training regime ("PPL init" in the paper's Table 6).
        best: the best on valid of the sweep and the training regime ("PPL best").
        best_length: its attention length; None for the training regime, the only candidate of a
            model without attention.
        attention_length: the shortest length within the tolerance of the best, if any is.
        by_position: segments laid end to end, so that each position is scored.
    """

    evaluate: dict[str, JsonValue]
    init: EvaluationRecord
    best: EvaluationRecord
    best_length: Count | None
    attention_length: Count | None
    sweep: tuple[SweepPoint, ...]
    by_position: EvaluationRecord


class Summary(Record):
    """`summary.json`: its presence with `training` means trained, with `results` measured."""

    SCHEMA: ClassVar[str] = "txlbench.summary/1"

    schema_id: str | None = Field(default=None, alias="schema")
    training: TrainingSummary | None = None
    results: tuple[Outcome, ...] | None = None

    def outcome(self, evaluate: EvaluateConfig) -> Outcome | None:
        """The newest results obtained under exactly `evaluate`, None if there are none."""
        wanted = hashed_fields(evaluate)
        found = [each for each in self.results or () if each.evaluate == wanted]
        return found[-1] if found else None


class DenseExponent(Record):
    """`exponent.json`: the L²M exponent that `context --dense` measured of a run's losses.

    Attributes:
        length: the largest L.
        low, high: its 95 % interval.
    """

    length: Count | None = None
    tokens: Count | None = None
    way: str = ""
    value: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


class LogLine(Record):
    """A line of `metrics.jsonl` or `timings.jsonl`."""

    __pydantic_extra__: dict[str, FiniteFloat | str | None]
    step: Count
    tokens: Count | None = None
    train_loss: FiniteFloat | None = None
    valid_loss: FiniteFloat | None = None
    time: Seconds = 0.0
    seconds: Seconds = 0.0
    tokens_per_second: FiniteFloat = 0.0

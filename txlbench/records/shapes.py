"""What the JSON files of a run must hold, as far as their readers rely on it.

Files come from other machines and from strangers, so each is held against its shape when it is
read; a key may be missing, and what is not listed here is taken as it is.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from txlbench.config.section import Split

Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[FiniteFloat, Field(ge=0, lt=1e11)]


class Record(BaseModel):
    """A JSON object that may hold more than is listed."""

    model_config = ConfigDict(extra="allow", strict=True)


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


class Result(Record):
    """Final numbers under one evaluation section; reports read them more closely."""

    evaluate: dict[str, Any]


class Summary(Record):
    """`summary.json`."""

    training: Training = Training()
    results: list[Result] = []


class Evaluation(Record):
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

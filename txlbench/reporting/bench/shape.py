"""What a bench.json must hold, as far as its table and figure rely on it."""

from typing import Annotated

from pydantic import Field, FiniteFloat, PositiveInt

from txlbench.config.benchmarks import Work
from txlbench.records.shapes import Count, Record

Positive = Annotated[FiniteFloat, Field(gt=0)]


class Rate(Record):
    """Tokens a second."""

    median: Positive
    min: Positive
    max: Positive


class Result(Record):
    """One workload."""

    work: Work
    size: str
    dtype: str
    mem_len: Count
    tokens_per_second: Rate
    matmul_share: Positive | None
    peak_memory_bytes: Count


class Machine(Record):
    """Where it was measured."""

    processor: str
    device: str
    threads: PositiveInt
    torch: str


class Bench(Record):
    """`bench.json`."""

    machine: Machine
    commit: str | None
    rounds: PositiveInt
    contexts: list[PositiveInt]
    matmul_gflops: dict[str, Positive]
    results: Annotated[list[Result], Field(min_length=1)]

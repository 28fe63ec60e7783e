"""Speeds as a table: one line a workload, with what another bench.json had beside it.

bench.json as its table and figure read it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from txlbench.errors import UserError
from txlbench.records.schema import Bench, read_of_schema
from txlbench.reporting.table import EMPTY, Column, Table

SCHEMA = "txlbench.bench/1"
SAME = ("work", "size", "dtype", "mem_len")
"""What makes results of two files the same work."""


@dataclass(frozen=True)
class BenchRecord:
    """All of bench.json; also the source that the figure names.

    Attributes:
        command: what was typed to make what is written now.
    """

    content: Mapping[str, Any]
    command: str

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        return self.content["results"]

    @property
    def machine(self) -> str:
        """One line: processor, threads, PyTorch."""
        machine = self.content["machine"]
        threads = machine["threads"]
        return (
            f"{machine['processor']}, {machine['device']}, "
            f"{threads} thread{'s' * (threads != 1)}, torch {machine['torch']}"
        )

    @property
    def short(self) -> str:
        return f"bench  ·  commit {self.content['commit'] or 'unknown'}  ·  {self.machine}"

    @property
    def full(self) -> str:
        commit = self.content["commit"] or "unknown"
        return f"{self.machine}; commit {commit}; command: {self.command}"

    def median(self, result: Mapping[str, Any]) -> float | None:
        """Tokens a second at the same work here; None if it was not timed."""
        wanted = [result[key] for key in SAME]
        for own in self.results:
            if [own[key] for key in SAME] == wanted:
                rate: float = own["tokens_per_second"]["median"]
                return rate
        return None


def read_bench(path: Path, command: str) -> BenchRecord:
    """The record in `path`; UserError if it is not a whole one of this schema."""
    content = read_of_schema(path, SCHEMA)
    try:
        Bench.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {key}: {first['msg']}", "make the file anew") from None
    return BenchRecord(content, command)


WORKS = {
    "train": "training",
    "eval": "streaming evaluation",
    "generate": "generation, a token at a time",
    "context_losses": "context losses",
}


def bench_table(record: BenchRecord, against: BenchRecord | None) -> Table:
    """Medians and spreads; columns without content are left out."""
    results = record.results

    def column(header: str, cells: list[str]) -> Column:
        return Column(header, tuple(cells), is_number=True)

    columns = [
        Column("work", tuple(WORKS[result["work"]] for result in results)),
        Column("size", tuple(result["size"] for result in results)),
        Column("dtype", tuple(result["dtype"] for result in results)),
        column("memory", [f"{result['mem_len']:,}" for result in results]),
        column("tokens/s", [f"{_rate(result, 'median'):,.0f}" for result in results]),
        column("lowest", [f"{_rate(result, 'min'):,.0f}" for result in results]),
        column("highest", [f"{_rate(result, 'max'):,.0f}" for result in results]),
        column("share of matrix products", [_share(result) for result in results]),
        column(
            "peak memory", [f"{result['peak_memory_bytes'] / 2**20:,.0f} MiB" for result in results]
        ),
        column("times the other", [_times(result, against) for result in results]),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(_footer(record, against)), record.full)


def name_of(result: Mapping[str, Any]) -> str:
    """What a workload is called where there is no column for each property."""
    memory = f", M {result['mem_len']:,}" if result["work"] == "generate" else ""
    return f"{WORKS[result['work']].partition(',')[0]} {result['size']} {result['dtype']}{memory}"


def _footer(record: BenchRecord, against: BenchRecord | None) -> list[str]:
    rates = ", ".join(f"{k} {v:,.0f}" for k, v in record.content["matmul_gflops"].items())
    contexts = record.content["contexts"]
    lines = [
        f"Median, lowest and highest of {record.content['rounds']} repetitions after two that warm "
        "up. Peak memory: of the whole process, PyTorch included.",
        f"Matrix products of this machine, measured between the repetitions: {rates} GFLOP/s. "
        "Share: necessary FLOPs (each projection once a new token, keys and values of the memory "
        "once a step in training, attention over M + (L + 1) / 2 keys, backward twice the "
        "forward) a second over that.",
        f"Context losses: tokens scored a second, each at {len(contexts)} contexts from "
        f"{contexts[0]} to {contexts[-1]}.",
    ]
    if against is not None:
        lines.append(f"The other: {against.full}.")
    return lines


def _rate(result: Mapping[str, Any], which: str) -> float:
    rate: float = result["tokens_per_second"][which]
    return rate


def _share(result: Mapping[str, Any]) -> str:
    share = result["matmul_share"]
    return EMPTY if share is None else f"{100 * share:.1f} %"


def _times(result: Mapping[str, Any], against: BenchRecord | None) -> str:
    other = against and against.median(result)
    return EMPTY if not other else f"{_rate(result, 'median') / other:.2f}"

"""bench.json as its table and figure read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from txlbench.errors import UserError
from txlbench.reporting.bench.shape import Bench
from txlbench.reporting.schema import read_of_schema

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

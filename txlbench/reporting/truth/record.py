"""truth.json as its page and figure read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.reporting.schema import read_of_schema

SCHEMA = "txlbench.truth/1"


@dataclass(frozen=True)
class TruthRecord:
    """All of truth.json; also the source that the figure names.

    Attributes:
        command: what was typed to make what is written now.
    """

    content: Mapping[str, Any]
    command: str

    @property
    def contexts(self) -> Sequence[int]:
        return self.content["contexts"]

    @property
    def shares(self) -> Sequence[float]:
        return self.content["r"]

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        return self.content["rows"]

    @property
    def short(self) -> str:
        commit = self.content["commit"] or "unknown"
        return f"planted  ·  commit {commit}  ·  {len(self.rows)} runs"

    @property
    def full(self) -> str:
        runs = ", ".join(row["run"] for row in self.rows)
        commit = self.content["commit"] or "unknown"
        return f"Runs {runs}; commit {commit}; command: {self.command}"


def read_truth(path: Path, command: str) -> TruthRecord:
    """The record in `path`; UserError if it is not one of this schema."""
    return TruthRecord(read_of_schema(path, SCHEMA), command)

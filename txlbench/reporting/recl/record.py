"""recl.json as the tables and figures read it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.reporting.schema import read_of_schema

SCHEMA = "txlbench.recl/1"


@dataclass(frozen=True)
class Group:
    """One group of models.

    Attributes:
        name: a letter, empty where there is one group only.
        content: its entry in recl.json.
    """

    name: str
    content: Mapping[str, Any]

    @property
    def models(self) -> Sequence[str]:
        return self.content["models"]

    def result(self, model: str, r: float) -> Mapping[str, Any]:
        """The entry of one model and share."""
        return next(
            line for line in self.content["results"] if (line["model"], line["r"]) == (model, r)
        )

    def baseline(self, r: float) -> Sequence[float]:
        """exp f(c, c) of every step's shorter context c, a perplexity."""
        return next(line["perplexity"] for line in self.content["baselines"] if line["r"] == r)


@dataclass(frozen=True)
class ReclRecord:
    """All of recl.json; also the source that figures name.

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
    def unit(self) -> str:
        return self.content["unit"]

    @property
    def threshold(self) -> float:
        return self.content["threshold"]

    @property
    def level(self) -> float:
        """Of the test against noise."""
        return self.content["level"]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.content["models"])

    def groups(self) -> Iterator[Group]:
        several = len(self.content["groups"]) > 1
        for index, content in enumerate(self.content["groups"]):
            yield Group(chr(ord("a") + index % 26) if several else "", content)

    @property
    def short(self) -> str:
        """One line for the foot of a figure."""
        commit = self.content["commit"] or "unknown"
        count = len(self.models)
        return f"recl  ·  commit {commit}  ·  {count} model{'s' * (count != 1)}"

    @property
    def full(self) -> str:
        """One line that names everything."""
        models = "; ".join(
            f"{name}: {source['path'] or source['reference']}"
            for name, source in self.content["models"].items()
        )
        commit = self.content["commit"] or "unknown"
        return f"Models {models}; commit {commit}; command: {self.command}"


def read_recl(path: Path, command: str) -> ReclRecord:
    """The record in `path`; UserError if it is not one of this schema."""
    return ReclRecord(read_of_schema(path, SCHEMA), command)

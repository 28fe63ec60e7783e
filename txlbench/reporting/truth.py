"""truth.json as one flat table: a line for each row and context, losses in nats.

truth.json as its page and figure read it.

Measured against known: the streaming loss and RECL of each row, and its loss by context.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.config.base import displayed
from txlbench.records.schema import read_of_schema
from txlbench.reporting.table import Column, Table

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


EXPLANATIONS = (
    "Streaming: the loss of the test split with segments and memory as in training; the known "
    "one is the optimum of the same tokens, each with the context it sees.",
    "Known is what memory shows directly. A model of several layers can carry symbols on in the "
    "states that memory keeps: where it is below, it did.",
    "RECL above the null, and in brackets that of the known losses. Of the seeds of a row, the "
    "one with the lowest validation loss.",
    "Short contexts are met in training only with resets: without, a model copies wrong symbols "
    "there with confidence, and its losses at fixed contexts say little.",
)


def truth_table(record: TruthRecord) -> Table:
    """One line a row of the experiment."""
    rows = record.rows
    columns = [
        Column("row", tuple(row["label"] for row in rows)),
        Column("seed", tuple(str(row["seed"]) for row in rows), is_number=True),
        Column("bpc streaming", tuple(_bpc(row["streaming"]["loss"]) for row in rows), True),
        Column("known", tuple(_bpc(row["streaming"]["optimum"]) for row in rows), True),
        Column("above it", tuple(_excess(**_streaming(row)) for row in rows), True),
        Column("worst context", tuple(f"{100 * worst(row):+.1f} %" for row in rows), True),
        *(
            Column(f"RECL r={share:g}", tuple(_recl(row, share) for row in rows), is_number=True)
            for share in record.shares
        ),
    ]
    scored = f"Context losses: {rows[0]['tokens']:,} tokens of test."
    return Table(tuple(columns), (*EXPLANATIONS, scored), record.full)


def context_table(record: TruthRecord) -> Table:
    """Loss at each context, and how far above the known one."""
    columns = [Column("row", tuple(row["label"] for row in record.rows))]
    for index, context in enumerate(record.contexts):
        cells = tuple(
            f"{_bpc(row['losses'][index])} ({_excess(row['losses'][index], row['known'][index])})"
            for row in record.rows
        )
        columns.append(Column(f"bpc at {context}", cells, is_number=True))
    return Table(tuple(columns), ("In brackets: above the known loss.",), record.full)


def worst(row: Mapping[str, Any]) -> float:
    """The largest excess over the known loss among contexts, as a share of it."""
    pairs = zip(row["losses"], row["known"], strict=True)
    return max(loss / known - 1 for loss, known in pairs)


def _streaming(row: Mapping[str, Any]) -> dict[str, float]:
    return {"loss": row["streaming"]["loss"], "known": row["streaming"]["optimum"]}


def _bpc(loss: float) -> str:
    return f"{displayed(loss, 'bpc'):.3f}"


def _excess(loss: float, known: float) -> str:
    return f"{100 * (loss / known - 1):+.1f} %"


def _recl(row: Mapping[str, Any], share: float) -> str:
    line = next(each for each in row["recl"] if each["r"] == share)
    return f"{line['recl_above_null']} ({line['true']})"


COLUMNS = ("row", "run", "seed", "mem_len", "memory_reset", "context", "loss", "known")


def truth_csv(record: TruthRecord) -> str:
    """Full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in record.rows:
        same = [row["label"], row["run"], row["seed"], row["mem_len"], row["memory_reset"]]
        for context, loss, known in zip(record.contexts, row["losses"], row["known"], strict=True):
            writer.writerow([*same, context, loss, known])
    return text.getvalue()

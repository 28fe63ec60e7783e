"""Measured against known: the streaming loss and RECL of each row, and its loss by context."""

from collections.abc import Mapping
from typing import Any

from txlbench.config.units import displayed
from txlbench.reporting.table import Column, Table
from txlbench.reporting.truth.record import TruthRecord

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


def main_table(record: TruthRecord) -> Table:
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

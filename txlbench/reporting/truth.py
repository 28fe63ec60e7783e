"""Measured against known: the streaming loss and RECL of each row, and its loss by context."""

from collections.abc import Iterator, Mapping

from txlbench.config.base import displayed
from txlbench.records.finding_schema import TruthRecord, TruthRow
from txlbench.reporting.table import Column, Table


def short_source(record: TruthRecord) -> str:
    """One line for the foot of a figure."""
    return f"planted  ·  commit {record.commit or 'unknown'}  ·  {len(record.rows)} runs"


def full_source(record: TruthRecord) -> str:
    """One line that names every run, the commit and the command."""
    return f"Runs {', '.join(row.run for row in record.rows)}; {record.provenance}"


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
        Column("row", tuple(row.label for row in rows)),
        Column("seed", tuple(str(row.seed) for row in rows), is_number=True),
        Column("bpc streaming", tuple(_bpc(row.streaming.loss) for row in rows), True),
        Column("known", tuple(_bpc(row.streaming.optimum) for row in rows), True),
        Column("above it", tuple(_streaming_excess(row) for row in rows), True),
        Column("worst context", tuple(f"{100 * worst(row):+.1f} %" for row in rows), True),
        *(
            Column(f"RECL r={share:g}", tuple(_recl(row, share) for row in rows), is_number=True)
            for share in record.r
        ),
    ]
    scored = f"Context losses: {rows[0].tokens:,} tokens of test."
    footer = (*EXPLANATIONS, scored)
    return Table(tuple(columns), footer, full_source(record), "Measured against known")


def context_table(record: TruthRecord) -> Table:
    """Loss at each context, and how far above the known one."""
    columns = [Column("row", tuple(row.label for row in record.rows))]
    for index, context in enumerate(record.contexts):
        cells = tuple(
            f"{_bpc(row.losses[index])} ({_excess(row.losses[index], row.known[index])})"
            for row in record.rows
        )
        columns.append(Column(f"bpc at {context}", cells, is_number=True))
    footer = ("In brackets: above the known loss.",)
    return Table(tuple(columns), footer, full_source(record), "Loss by context")


def worst(row: TruthRow) -> float:
    """The largest excess over the known loss among contexts, as a share of it."""
    pairs = zip(row.losses, row.known, strict=True)
    return max(loss / known - 1 for loss, known in pairs)


def _bpc(loss: float) -> str:
    return f"{displayed(loss, 'bpc'):.3f}"


def _excess(loss: float, known: float) -> str:
    return f"{100 * (loss / known - 1):+.1f} %"


def _streaming_excess(row: TruthRow) -> str:
    return _excess(row.streaming.loss, row.streaming.optimum)


def _recl(row: TruthRow, share: float) -> str:
    line = next(each for each in row.recl if each.r == share)
    return f"{line.recl_above_null} ({line.true})"


def truth_lines(record: TruthRecord) -> Iterator[Mapping[str, object]]:
    """The lines of truth.csv: one a row and context, losses in nats."""
    for row in record.rows:
        for context, loss, known in zip(record.contexts, row.losses, row.known, strict=True):
            yield {
                "row": row.label,
                "run": row.run,
                "seed": row.seed,
                "mem_len": row.mem_len,
                "memory_reset": row.memory_reset,
                "context": context,
                "loss": loss,
                "known": known,
            }

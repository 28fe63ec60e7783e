"""truth.json as one flat table: a line for each row and context, losses in nats."""

import csv
import io

from txlbench.reporting.truth.record import TruthRecord

COLUMNS = ("row", "run", "seed", "mem_len", "memory_reset", "context", "loss", "known")


def as_csv(record: TruthRecord) -> str:
    """Full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in record.rows:
        same = [row["label"], row["run"], row["seed"], row["mem_len"], row["memory_reset"]]
        for context, loss, known in zip(record.contexts, row["losses"], row["known"], strict=True):
            writer.writerow([*same, context, loss, known])
    return text.getvalue()

"""RECL as CSV for programs: one line a group, model and share, numbers in full."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from txlbench.reporting.recl.record import Group, ReclRecord


def as_csv(record: ReclRecord) -> str:
    """Every result of `record`; what is not known is empty."""
    lines = [
        _line(record, group, result)
        for group in record.groups()
        for result in group.content["results"]
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _line(record: ReclRecord, group: Group, result: Mapping[str, Any]) -> dict[str, Any]:
    low, high = result["interval"]
    above_low, above_high = result["interval_above_null"]
    same = ("model", "r", "recl", "capped", "limited_by", "recl_above_null", "paper")
    return {
        "group": group.name,
        **{name: result[name] for name in same},
        "recl_low": low,
        "recl_high": high,
        "recl_above_null_low": above_low,
        "recl_above_null_high": above_high,
        "ecl": group.content["ecl"][result["model"]],
        "threshold": record.threshold,
        "first_context": record.contexts[0],
        "last_context": record.contexts[-1],
        "contexts": len(record.contexts),
        "tokens": group.content["tokens"],
        "commit": record.content["commit"],
        "command": record.command,
    }

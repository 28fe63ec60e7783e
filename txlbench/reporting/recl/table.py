"""RECL as tables: models down, shares across as in the paper's Table 8, and what bears on it."""

from collections.abc import Callable, Mapping
from typing import Any

from txlbench.reporting.recl.record import Group, ReclRecord
from txlbench.reporting.recl.words import (
    above_null,
    explanations,
    length,
    warnings,
    with_interval,
)
from txlbench.reporting.table import EMPTY, Column, Table

Lines = list[tuple[Group, str]]
"""A line of the table: a model in its group."""


def main_table(record: ReclRecord) -> Table:
    """RECL, RECL above the null, the paper's and ECL; columns without content are left out."""
    lines: Lines = [(group, model) for group in record.groups() for model in group.models]
    last = record.contexts[-1]

    def by_share(header: str, cell: Callable[[Mapping[str, Any]], str]) -> list[Column]:
        return [
            Column(
                f"{header} r={share:g}",
                tuple(cell(group.result(model, share)) for group, model in lines),
                is_number=True,
            )
            for share in record.shares
        ]

    columns = [
        Column("group", tuple(group.name for group, _ in lines)),
        Column("model", tuple(model for _, model in lines)),
        *by_share("RECL", lambda line: with_interval(length(line), line["interval"])),
        *by_share(
            "above null",
            lambda line: with_interval(above_null(line, last), line["interval_above_null"]),
        ),
        *by_share("paper", lambda line: EMPTY if line["paper"] is None else f"{line['paper']}"),
        Column("ECL", tuple(str(group.content["ecl"][model]) for group, model in lines), True),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, (*explanations(record), *warnings(record)), record.full)


def sensitivity_table(record: ReclRecord) -> Table:
    """Both RECLs, "paper's / above null", under other steps, first contexts and thresholds."""
    lines = [
        (group, model, share)
        for group in record.groups()
        for model in group.models
        for share in record.shares
    ]
    found = {
        (group.name, line["model"], line["r"], line["setting"]): _both(line)
        for group in record.groups()
        for line in group.content["sensitivity"]
    }
    settings = dict.fromkeys(setting for *_, setting in found)
    columns = [
        Column("group", tuple(group.name for group, *_ in lines)),
        Column("model", tuple(model for _, model, _ in lines)),
        Column("r", tuple(f"{share:g}" for *_, share in lines), is_number=True),
        Column("as given", tuple(_both(g.result(m, r)) for g, m, r in lines), is_number=True),
        *(
            Column(
                name,
                tuple(found.get((g.name, m, r, name), EMPTY) for g, m, r in lines),
                is_number=True,
            )
            for name in settings
        ),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, ("Each: RECL / RECL above the null.",), record.full)


def subgroup_table(record: ReclRecord) -> Table:
    """The paper's RECL of every model in every smaller group, which shares another baseline."""
    lines: dict[tuple[str, str, str], dict[float, str]] = {}
    for group in record.groups():
        for line in group.content["subgroups"]:
            key = (group.name, line["model"], _company(line))
            lines.setdefault(key, {})[line["r"]] = f"{'≥' * line['capped']}{line['recl']}"
    keys = sorted(lines, key=lambda key: (key[0], record.models.index(key[1])))
    columns = [
        Column("group", tuple(key[0] for key in keys)),
        Column("model", tuple(key[1] for key in keys)),
        Column("beside", tuple(key[2] for key in keys)),
        *(
            Column(f"RECL r={share:g}", tuple(lines[key][share] for key in keys), is_number=True)
            for share in record.shares
        ),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, ("The baseline of a group is the best of its models.",), record.full)


def _both(line: Mapping[str, Any]) -> str:
    return f"{line['recl']} / {line['recl_above_null']}"


def _company(line: Mapping[str, Any]) -> str:
    others = [model for model in line["models"] if model != line["model"]]
    return ", ".join(others) or "alone"

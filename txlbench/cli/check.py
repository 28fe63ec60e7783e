"""`txlbench check`: whether the models of an experiment file keep what every model must."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from txlbench.commands.check import Checked
    from txlbench.reporting.table import Table


@click.command()
@click.argument("specs", nargs=-1, type=click.Path(path_type=Path, exists=True))
def check(specs: tuple[Path, ...]) -> int:
    """Run the invariants on each model of SPECS: experiment files, or folders of them.

    Without SPECS, on every encoding. Models keep their kind, encoding and flags, but are made
    small, and read synthetic tokens: no corpus is needed. A cell holds the largest difference
    found; `-` stands where an invariant is not claimed, as of segments where positions start anew
    in each of them. The last column is for information: how much losses depend on where segments
    are cut with the row's own memory, which grows with depth and is no fault.
    """
    from txlbench.commands.check import check_experiments, spec_files
    from txlbench.errors import ExitStatus
    from txlbench.reporting.table import plain_text

    found = list(check_experiments(spec_files(specs)))
    click.echo(plain_text(_table(found)))
    broken = [(each, name) for each in found for name in each.broken]
    for each, name in broken:
        difference = each.differences[name]
        click.echo(f"{each.labels[0]}: {name} does not hold: differs by {difference:.3g}", err=True)
    return ExitStatus.RUN_FAILED if broken else ExitStatus.DONE


def _table(found: "list[Checked]") -> "Table":
    from txlbench.reporting.table import Column, Table

    columns = [Column("row", tuple(map(_name, found)))]
    for name in found[0].differences:
        columns.append(Column(name, tuple(_cell(each, name) for each in found)))
    columns.append(Column("cuts (info)", tuple(f"{each.cuts:.0e}" for each in found)))
    footer = (
        f"{len(found)} models, made small, in float64; the largest difference of each invariant."
    )
    return Table(tuple(columns), (footer,), "")


def _name(checked: "Checked") -> str:
    more = len(checked.labels) - 1
    return f"{checked.labels[0]}{f' and {more} more' if more else ''}"


def _cell(checked: "Checked", name: str) -> str:
    difference = checked.differences[name]
    if difference is None:
        return "-"
    shown = "0" if difference == 0 else f"{difference:.0e}"
    return f"BROKEN {shown}" if name in checked.broken else f"ok {shown}"

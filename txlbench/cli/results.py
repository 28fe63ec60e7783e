"""Verbs of stored results: `status`, `prune`, `figures`, `report`, `sync`, `merge`; none trains."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txlbench.cli.options import WIDTH_OF_FIGURES, FigureWidth, out_option, verb, width_option
from txlbench.errors import ExitStatus, UserError
from txlbench.records.experiment_directory import (
    RESULTS,
    ExperimentDirectory,
    experiments_at,
    results_at,
)

if TYPE_CHECKING:
    from txlbench.reporting.figures.style import Look
    from txlbench.reporting.result_table import TableChoice
    from txlbench.runs.merge import Merged


@verb("status", "txlbench status", "txlbench status results/quick")
@click.argument("directory", default=RESULTS, type=click.Path(path_type=Path))
@click.option(
    "--watch",
    "is_watching",
    is_flag=True,
    help="Shows curve, speed and time left of each run as it trains, until all have ended.",
)
def status(directory: Path, is_watching: bool) -> int:
    """Show every run with its state, loss and progress.

    DIRECTORY is an experiment, by its path or its name under results/, or a folder of them; the
    default is results/. Runs of the experiment file that have not started are shown too, as are
    those of other settings than the file's, with the settings that differ. A run whose process died
    is `interrupted`: the next `ablate` resumes it. One with a file that cannot be read is
    `damaged`; the exit status is 1 then.
    """
    if is_watching:
        from rich.console import Console

        from txlbench.cli.watch import watch

        return watch(experiments_at([directory]), Console(emoji=False))
    from txlbench.runs.status import status_lines

    any_damage = False
    for experiment in experiments_at([directory]):
        click.echo(experiment.path)
        for line, damaged in status_lines(experiment):
            any_damage |= damaged
            click.echo(f"  {line}")
    return ExitStatus.RUN_FAILED if any_damage else ExitStatus.DONE


@verb("prune", "txlbench prune", "txlbench prune results/quick --yes")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Deletes what is listed.")
def prune(directories: tuple[Path, ...], yes: bool) -> None:
    """List what no result needs, and delete it with --yes.

    That is: runs of other settings than those of the experiment file, runs that were set aside
    because their corpus changed, and the last checkpoint but one of finished runs. DIRECTORIES are
    experiments, or folders of them; the default is results/.
    """
    from rich.filesize import decimal

    from txlbench.runs.status import spares

    found = [each for experiment in experiments_at(directories) for each in spares(experiment)]
    total = decimal(sum(spare.size for spare in found))
    for spare in found:
        click.echo(f"{spare.path}: {decimal(spare.size)}, {spare.reason}")
        if yes:
            spare.delete()
    done = f"{total} deleted" if yes else f"{total} can be deleted with --yes"
    click.echo(done if found else "nothing to delete")


Made = tuple[tuple[Path, ...], tuple[str, ...]]
"""Files, and what is damaged and was left out."""


@verb(
    "figures",
    "txlbench figures",
    "txlbench figures results/quick --format pdf --width single --no-title",
)
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(["png", "svg", "pdf"]),
    help="Kind of file; may be repeated.  [default: png and svg]",
)
@click.option("--width", default=7.2, show_default=True, type=FigureWidth(), help=WIDTH_OF_FIGURES)
@click.option(
    "--title/--no-title",
    default=True,
    help="Draws title, subtitle and source, or leaves them out for a paper.",
)
@click.option(
    "--columns",
    help="Columns of experiments' Markdown and LaTeX tables, by their headers.  [default: all]",
    metavar="A,B,...",
)
@click.option(
    "--digits",
    type=click.IntRange(0, 12),
    help="Digits after the point of losses in those.  [default: 3 of bpc, 2 of perplexity]",
)
def figures(
    directories: tuple[Path, ...],
    formats: tuple[str, ...],
    width: float,
    title: bool,
    columns: str | None,
    digits: int | None,
) -> int:
    """Rebuild tables and figures from stored results.

    DIRECTORIES are experiments, results of `recl`, `speed` and other verbs, or folders of them;
    the default is results/.
    """
    from txlbench.reporting.figures.style import Look
    from txlbench.reporting.result_table import TableChoice

    command = " ".join(["txlbench figures", *map(str, directories)])
    look = Look(formats or ("png", "svg"), width, title)
    choice = TableChoice(tuple(name.strip() for name in (columns or "").split(",") if name), digits)
    experiments, findings = results_at(directories)
    whole = [
        _rebuild(each.path, partial(_rebuild_experiment, each, command, look, choice))
        for each in experiments
    ]
    whole += [_rebuild(each, partial(_rebuild_finding, each, command, look)) for each in findings]
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _rebuild_experiment(
    directory: ExperimentDirectory, command: str, look: "Look", choice: "TableChoice"
) -> Made:
    from txlbench.reporting.report import report

    written = report(directory, command, look, choice)
    return (written.page, *written.tables, *written.figures), tuple(written.damage)


def _rebuild_finding(path: Path, command: str, look: "Look") -> Made:
    from txlbench.reporting.findings import report_finding

    return report_finding(path, command, look).paths, ()


def _rebuild(path: Path, write: Callable[[], Made]) -> bool:
    """Whether all of it could be rebuilt; says what could not, a line each."""
    try:
        made, damage = write()
    except (UserError, OSError) as error:
        click.echo(f"{path}: not rebuilt: {error}", err=True)
        return False
    for line in damage:
        click.echo(f"{path}: a run left out: {line}", err=True)
    for each in made:
        click.echo(each)
    return not damage


@verb(
    "report",
    "txlbench report",
    "txlbench report results/quick",
    "txlbench report results/quick --publish published",
)
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--publish",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Copies the records there, without weights, logs and losses by token, and makes pages, "
    "tables and figures from the copies, for a repository.",
)
def report(directories: tuple[Path, ...], folder: Path | None) -> int:
    """Make a page of each result, and an index of all.

    DIRECTORIES are experiments, results of `recl`, `speed` and other verbs, or folders of them;
    the default is results/. A page is one HTML file that needs no other and no network: the answer
    in words first, then tables, figures and where each number comes from. The verbs that measure
    make theirs as they end.
    """
    from txlbench.reporting.pages.result_index import index_folders, write_index

    command = " ".join(["txlbench report", *map(str, directories)])
    experiments, findings = results_at(directories)
    if folder is not None:
        return _publish_copies(experiments, findings, folder)
    whole = [_rebuild(each, partial(_page_of_finding, each, command)) for each in findings]
    whole += [
        _rebuild(each.path, partial(_page_of_experiment, each, command)) for each in experiments
    ]
    for folder in index_folders(directories):
        click.echo(write_index(folder))
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _publish_copies(
    experiments: list[ExperimentDirectory], findings: list[Path], folder: Path
) -> int:
    from txlbench.reporting.pages.result_index import write_index
    from txlbench.reporting.publication import copy_records, publish_experiment, publish_finding

    copies, paths = copy_records(experiments, findings, folder)
    whole = [_rebuild(path, partial(publish_finding, path)) for path in paths]
    whole += [_rebuild(each.path, partial(publish_experiment, each)) for each in copies]
    click.echo(write_index(folder, is_dated=False))
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _page_of_experiment(directory: ExperimentDirectory, command: str) -> Made:
    from txlbench.reporting.report import write_page

    return (directory.page,), write_page(directory, command)


def _page_of_finding(path: Path, command: str) -> Made:
    from txlbench.reporting.findings import write_finding_page

    return (write_finding_page(path, command),), ()


@verb("sync", "txlbench sync", "txlbench sync results/quick --rebuild")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--rebuild", is_flag=True, help="Deletes their runs from MLflow first, and delivers all again."
)
def sync(directories: tuple[Path, ...], rebuild: bool) -> int:
    """Deliver to MLflow what it lacks, or rebuild its store.

    DIRECTORIES are experiments, results of `recl`, `speed` and other verbs, or folders of them;
    the default is results/. The store is $MLFLOW_TRACKING_URI, else mlflow.db beside the results.
    """
    experiments, findings = results_at(directories)
    whole = [_deliver(path, rebuild) for path in [*(each.path for each in experiments), *findings]]
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _deliver(path: Path, rebuild: bool) -> bool:
    """Whether the store has everything now; says so, or what it lacks."""
    from txlbench.tracking.backlog import nothing_to_deliver, what_is_left, where_to_look

    if not rebuild and nothing_to_deliver(path):
        click.echo(f"{path}: nothing new; {where_to_look(path)}")
        return True
    from txlbench.tracking.deliver import deliver

    if (reason := deliver(path, rebuild)) is not None:
        click.echo(what_is_left(path, reason), err=True)
        return False
    click.echo(f"{path}: delivered; {where_to_look(path)}")
    return True


@verb(
    "merge",
    "txlbench merge other/results",
    "txlbench merge results other/results --out all-results",
)
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
@width_option
@out_option("Directory to merge the experiments into.", RESULTS)
def merge(directories: tuple[Path, ...], look: "Look | None", out: Path) -> int:
    """Merge the results of several machines.

    DIRECTORIES are results folders, or single experiments. Runs are copied; of a run that several
    of them hold the most advanced copy is taken. Runs with one id but different content are refused
    before anything is copied. Tables, figures and the MLflow store are rebuilt.
    """
    from txlbench.runs.merge import merge as merge_experiments

    merged = merge_experiments(experiments_at(directories), out)
    command = shlex.join(["txlbench", "merge", *map(str, directories), "--out", str(out)])
    return max([_publish(each, command, look) for each in merged], default=0)


def _publish(merged: "Merged", command: str, look: "Look | None") -> int:
    """Tables, figures and MLflow of one experiment; 1 if something of it could not be done."""
    from txlbench.reporting.report import report
    from txlbench.tracking.deliver import deliver

    path = merged.directory.path
    counts = {"copied": merged.copied, "known": merged.known, "replaced": merged.replaced}
    click.echo(f"{path}: {', '.join(f'{len(runs)} {what}' for what, runs in counts.items())}")
    written = report(merged.directory, command, look)
    complaints = [f"a run left out: {line}" for line in written.damage]
    if (reason := deliver(path, rebuild=True)) is not None:
        complaints.append(f"MLflow: {reason}")
    for complaint in complaints:
        click.echo(f"{path}: {complaint}", err=True)
    return ExitStatus.RUN_FAILED if complaints else ExitStatus.DONE

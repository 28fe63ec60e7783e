"""Writes a finding as JSON, tables, figures and pages, and delivers it to MLflow.

Delivery has a process of its own, since loading MLflow takes seconds.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.records.finding_schema import Finding
from txlbench.reporting.figures.style import Look
from txlbench.reporting.findings import FindingReport, report_finding
from txlbench.reporting.pages.experiment_findings import experiments_of
from txlbench.tracking.backlog import what_is_left
from txlbench.tracking.store import store_of

PATIENCE_SECONDS = 60.0


def deliver_aside(path: Path, *experiments: Path) -> str:
    """Has the finding at `path` delivered; returns what stood in the way, if anything.

    Experiments, by their directories, are delivered after it.

    A store beside the results is left to the process, which needs some seconds more and nobody's
    patience; `sync` tells if it failed. A server is waited for.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "txlbench.tracking.deliver", *map(str, (path, *experiments))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # what is handed over is delivered, whoever interrupts us then
    )
    if store_of(path.parent).is_own:
        return ""
    try:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return what_is_left(path, f"nothing came in {PATIENCE_SECONDS:.0f} s")
    if process.returncode and not said.strip():
        return what_is_left(path, f"the delivery ended with status {process.returncode}")
    return said.strip()


@dataclass(frozen=True)
class PublishedFinding:
    """A finding that is written and delivered.

    Attributes:
        path: its JSON file, whose content is `record`.
        undelivered: why MLflow has not got it; empty if it has.
    """

    path: Path
    record: Finding
    written: FindingReport
    undelivered: str


def publish(
    path: Path,
    measure: Callable[[], Finding],
    look: Look | None = None,
) -> PublishedFinding:
    """Writes what `measure` gives to `path`, and its page, tables and figures beside it.

    The pages of experiments whose models were measured, and the index of results, are made anew.

    Args:
        look: of the figures; their usual one without it.

    Raises:
        UserError: of `measure`, before anything is written, or if the place cannot be written,
            as far as that can be told before anything is measured.
    """
    _refuse_files_above(path)
    record = measure()
    try:
        write_json(path, record.content)
        written = report_finding(path, record.command, look)
        experiments = refresh_pages(path, record.command)
    except OSError as error:
        problem = f"{path.parent}: {error.strerror or error}"
        raise UserError(problem, "choose another place with --out") from error
    return PublishedFinding(path, record, written, deliver_aside(path, *experiments))


def refresh_pages(finding: Path, command: str) -> list[Path]:
    """Makes the pages of experiments anew that show the finding; gives their directories."""
    experiments = [each for each in experiments_of(finding) if each.page.exists()]
    if experiments:
        from txlbench.reporting.report import write_page  # with pandas, which takes long to load

        for experiment in experiments:
            write_page(experiment, command)
    return [each.path for each in experiments]


def _refuse_files_above(path: Path) -> None:
    """UserError where a folder of the place is a file, or may not be written to."""
    there = next(place for place in path.absolute().parents if place.exists())
    if not there.is_dir():
        raise UserError(f"{there}: not a directory", "choose another place with --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there}: may not be written to", "choose another place with --out")

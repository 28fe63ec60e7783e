"""Delivers a finding to MLflow in a process of its own: loading MLflow takes seconds.

From a measurement to everything that is left of it: JSON, tables and figures, MLflow.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.reporting.findings import Written
from txlbench.tracking.backlog import finding_left
from txlbench.tracking.store import store_of

PATIENCE_SECONDS = 60.0


def deliver_aside(path: Path) -> str:
    """Has the finding at `path` delivered; returns what stood in the way, if anything.

    A store beside the results is left to the process, which needs some seconds more and nobody's
    patience; `sync` tells if it failed. A server is waited for.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "txlbench.tracking.finding_mirror", str(path)],
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
        return finding_left(path, f"nothing came in {PATIENCE_SECONDS:.0f} s")
    if process.returncode and not said.strip():
        return finding_left(path, f"the delivery ended with status {process.returncode}")
    return said.strip()


@dataclass(frozen=True)
class Published:
    """A finding that is written and delivered.

    Attributes:
        path: its JSON file, whose content is `record`.
        undelivered: why MLflow has not got it; empty if it has.
    """

    path: Path
    record: Mapping[str, Any]
    written: Written
    undelivered: str


def publish(
    path: Path, measure: Callable[[], Mapping[str, Any]], report: Callable[[Path], Written]
) -> Published:
    """Writes what `measure` gives to `path`, then what `report` makes of its directory.

    Raises:
        UserError: of `measure`, before anything is written, or if the place cannot be written,
            as far as that can be told before anything is measured.
    """
    _refuse_files_above(path)
    record = measure()
    try:
        write_json(path, record)
        written = report(path.parent)
    except OSError as error:
        problem = f"{path.parent}: {error.strerror or error}"
        raise UserError(problem, "choose another place with --out") from error
    return Published(path, record, written, deliver_aside(path))


def _refuse_files_above(path: Path) -> None:
    """UserError where a folder of the place is a file, or may not be written to."""
    there = next(place for place in path.absolute().parents if place.exists())
    if not there.is_dir():
        raise UserError(f"{there}: not a directory", "choose another place with --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there}: may not be written to", "choose another place with --out")

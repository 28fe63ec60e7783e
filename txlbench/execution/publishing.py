"""From a measurement to everything that is left of it: JSON, tables and figures, MLflow."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.execution.finding_delivery import deliver_aside
from txlbench.files import write_json
from txlbench.reporting.written import Written


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

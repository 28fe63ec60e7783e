"""From a measurement to everything that is left of it: JSON, tables and figures, MLflow."""

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
        UserError: of `measure`, before anything is written, or if the place cannot be written.
    """
    record = measure()
    try:
        write_json(path, record)
        written = report(path.parent)
    except OSError as error:
        problem = f"{path.parent}: {error.strerror or error}"
        raise UserError(problem, "choose another place with --out") from error
    return Published(path, record, written, deliver_aside(path))

"""Tables and figures of a finding, by the name of its file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from txlbench.errors import UserError
from txlbench.reporting.bench.report import report_bench
from txlbench.reporting.recl.report import report_recl
from txlbench.reporting.speed.report import report_speed
from txlbench.reporting.truth.report import report_truth
from txlbench.reporting.written import Written

REPORTS: Mapping[str, Callable[[Path, str], Written]] = {
    "recl.json": report_recl,
    "truth.json": report_truth,
    "bench.json": report_bench,
    "speed.json": report_speed,
}


def report_finding(path: Path, command: str) -> Written:
    """Writes what is shown of the finding `path`.

    Raises:
        UserError: if it is not whole.
    """
    try:
        return REPORTS[path.name](path.parent, command)
    except (UserError, OSError):
        raise
    except Exception as error:  # of many kinds, from values that no verb writes
        kind = type(error).__name__
        raise UserError(f"{path}: damaged ({kind})", "restore it, or run the verb again") from error

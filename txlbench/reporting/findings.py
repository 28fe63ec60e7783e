"""Tables and figures of a finding, by the name of its file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from txlbench.reporting.bench.report import report_bench
from txlbench.reporting.recl.report import report_recl
from txlbench.reporting.truth.report import report_truth


def _recl(directory: Path, command: str) -> tuple[Path, ...]:
    return report_recl(directory, command).paths


def _truth(directory: Path, command: str) -> tuple[Path, ...]:
    return report_truth(directory, command).paths


def _bench(directory: Path, command: str) -> tuple[Path, ...]:
    return report_bench(directory, command).paths


REPORTS: Mapping[str, Callable[[Path, str], tuple[Path, ...]]] = {
    "recl.json": _recl,
    "truth.json": _truth,
    "bench.json": _bench,
}


def report_finding(path: Path, command: str) -> tuple[Path, ...]:
    """Writes what is shown of the finding `path`; returns the files.

    Raises:
        UserError: if it cannot be read.
    """
    return REPORTS[path.name](path.parent, command)

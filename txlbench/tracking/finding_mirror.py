"""Delivers a finding to MLflow: one run in the experiment of its kind, with all its files.

`python -m txlbench.tracking.finding_mirror FILE.json` does so as a process.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from txlbench.errors import ExitStatus
from txlbench.records.finding_schema import FINDINGS, Finding, read_finding
from txlbench.tracking.backlog import Delivered, files_of_finding, finding_left
from txlbench.tracking.client import Point, milliseconds, reason_of, silence
from txlbench.tracking.run_mirror import FolderMirror
from txlbench.tracking.store import store_of
from txlbench.tracking.values import parameters_of_finding, title_of_finding, values_of_finding


def deliver_finding(path: Path, rebuild: bool = False) -> str | None:
    """Delivers what is new of the finding at `path`; why not, in one line, if it failed.

    Args:
        rebuild: delete its run from the store first.
    """
    silence()
    try:
        store = store_of(path.parent)
        with store.locked():
            mirror = FolderMirror(store)
            if rebuild:
                mirror.forget(path.parent)
            _deliver(mirror, path)
            print(*mirror.mlflow.moves, sep="\n", end="\n" * bool(mirror.mlflow.moves))
    except Exception as error:  # whatever a store does, the finding lies in its folder
        return reason_of(error)
    return None


def _deliver(mirror: FolderMirror, path: Path) -> None:
    folder, kind = path.parent, path.stem
    home = mirror.mlflow.experiment_id(kind)
    tags = {"txlbench.finding": str(path.resolve())}
    finding = read_finding(path, FINDINGS[path.name])
    name = title_of_finding(kind, finding, folder.name)
    notes = mirror.ensure_run(folder, home, name, tags, path.stat().st_mtime)
    if any(notes.changed(folder, (path.name,))):
        _log(mirror, notes, finding)
    mirror.deliver_files(folder, notes, files_of_finding(path))
    mirror.set_status(folder, notes, "FINISHED", path.stat().st_mtime)


def _log(mirror: FolderMirror, notes: Delivered, finding: Finding) -> None:
    parameters = parameters_of_finding(finding)
    if not notes.files:
        mirror.mlflow.log_parameters(notes.run, parameters)
    mirror.mlflow.set_tags(notes.run, parameters)
    now = milliseconds(time.time())
    points = [Point(*each[:2], now, each.step) for each in values_of_finding(finding)]
    mirror.mlflow.log_points(notes.run, points)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the process beside a verb."""
    parser = argparse.ArgumentParser(prog="txlbench.tracking.finding_mirror", description=__doc__)
    parser.add_argument("path", type=Path)
    path: Path = parser.parse_args(arguments).path
    reason = deliver_finding(path)
    if reason is not None:
        print(finding_left(path, reason))
    return ExitStatus.DONE if reason is None else ExitStatus.RUN_FAILED


if __name__ == "__main__":
    sys.exit(main())

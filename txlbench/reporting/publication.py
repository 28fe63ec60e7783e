"""Results as a repository can hold them: records, tables, figures and pages, a few hundred kB each.

Weights, losses by token, logs and times of the machine stay behind. Everything that is shown is
made from the copied records, so that whoever has them can make it again and compare: publishing
what was published gives the same bytes.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.experiment_directory import FINDINGS, ExperimentDirectory
from txlbench.records.finding_schema import read_finding
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.reporting.figures.style import Look
from txlbench.reporting.findings import report_finding
from txlbench.reporting.report import report

LOOK = Look(formats=("svg",))
"""Figures are small as SVG, and a diff can show what changed."""
COPIED = ("config.yaml", "facts.json", "metrics.jsonl")
"""Files of a run that are taken as they are."""
Made = tuple[tuple[Path, ...], tuple[str, ...]]
"""Files, and what is damaged and was left out."""
STATES = (RunState.FINISHED, RunState.DIVERGED)
"""What is a result; runs on their way are left out."""


def copy_records(
    experiments: list[ExperimentDirectory], findings: list[Path], folder: Path
) -> tuple[list[ExperimentDirectory], list[Path]]:
    """Copies what results are made from into `folder`; gives them where they lie there.

    Raises:
        UserError: if a result there has weights, and so is no copy; then nothing was copied.
    """
    for original in [*(each.path for each in experiments), *(each.parent for each in findings)]:
        _refuse_originals(folder / original.resolve().name, original)
    copies = [ExperimentDirectory(folder / each.path.resolve().name) for each in experiments]
    for source, copy in zip(experiments, copies, strict=True):
        _copy_experiment(source, copy)
    paths = [folder / each.parent.resolve().name / each.name for each in findings]
    for path, target in zip(findings, paths, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_compact(target, _without_places(read_finding(path, FINDINGS[path.name]).content))
    return copies, paths


def _refuse_originals(target: Path, source: Path) -> None:
    """A copy may be replaced; what it was made from may not, nor what somebody trained."""
    if target.resolve() == source.resolve():
        raise UserError(f"{target}: would be replaced by itself", "choose another folder")
    for weights in target.glob("runs/*/checkpoints"):
        raise UserError(f"{weights}: weights, so {target} is no copy", "choose another folder")


def publish_experiment(copy: ExperimentDirectory) -> Made:
    """Makes tables, figures and page of an experiment; gives them, and what is damaged."""
    command = (copy.commands() or [""])[-1]
    written = report(copy, command, LOOK)
    return (written.page, *written.tables, *written.figures), written.damage


def publish_finding(path: Path) -> Made:
    """Makes tables, figures and page of a finding, under the command that measured it."""
    command = read_finding(path, FINDINGS[path.name]).command
    return report_finding(path, command, LOOK).paths, ()


def _without_places(value: Any) -> Any:
    """The same, absolute paths of loss files cut to their last part."""
    if isinstance(value, list):
        return [_without_places(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: Path(each).name
        if key == "path" and isinstance(each, str) and Path(each).is_absolute()
        else _without_places(each)
        for key, each in value.items()
    }


def _copy_experiment(source: ExperimentDirectory, copy: ExperimentDirectory) -> None:
    shutil.rmtree(copy.runs_directory, ignore_errors=True)
    copy.path.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.spec_file, copy.spec_file)
    write_text(copy.path / "commands.txt", "".join(f"{line}\n" for line in source.commands()))
    for identity in source.read_spec().runs():
        run = source.run(identity)
        if run.current_state in STATES:
            _copy_run(run, copy.run(identity))


def _copy_run(source: RunDirectory, copy: RunDirectory) -> None:
    copy.path.mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(source.path / name, copy.path / name)
    status = source.read_status().content
    kept: dict[str, Any] = {key: status[key] for key in ("state", "error") if key in status}
    _write_compact(copy.path / "status.json", kept)
    _write_compact(copy.path / "summary.json", source.read_summary().content)
    if (exponent := source.read_exponent()).value is not None:
        _write_compact(copy.path / "exponent.json", exponent.content)


def _write_compact(path: Path, content: Mapping[str, Any]) -> None:
    """Without indentation, which is half of a record of many numbers."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    write_text(path, f"{text}\n")

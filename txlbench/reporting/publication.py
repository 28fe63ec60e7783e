"""Results as a repository can hold them: records, tables, figures and pages, a few hundred kB each.

Weights, losses by token, logs and times of the machine stay behind. Everything that is shown is
made from the copied records, so that whoever has them can make it again and compare: publishing
what was published gives the same bytes.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.experiment_directory import FINDINGS, ExperimentDirectory, findings_in
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
MOST_NAMED = 3
Made = tuple[tuple[Path, ...], tuple[str, ...]]
"""Files, and what is damaged and was left out."""
STATES = (RunState.FINISHED, RunState.DIVERGED)
"""What is a result; runs on their way are left out."""


def copy_records(
    experiments: list[ExperimentDirectory], findings: list[Path], folder: Path
) -> tuple[list[ExperimentDirectory], list[Path]]:
    """Copies what results are made from into `folder`; gives them where they lie there.

    All is read and copied beside before anything in `folder` changes.

    Raises:
        UserError: if a result there has weights, and so is no copy, or holds runs that the new
            copy would lack; if two results have one name; or if a record is damaged.
    """
    experiments = list({each.path.resolve(): each for each in experiments}.values())
    findings = list({each.resolve(): each for each in findings}.values())
    _refuse_collisions([*(e.path for e in experiments), *(f.parent for f in findings)], folder)
    copies = [ExperimentDirectory(folder / each.path.resolve().name) for each in experiments]
    paths = [folder / each.parent.resolve().name / each.name for each in findings]
    there = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
    with TemporaryDirectory(prefix=".publish-", dir=there) as aside:
        new = Path(aside, "new")
        for source, copy in zip(experiments, copies, strict=True):
            made = ExperimentDirectory(new / copy.path.name)
            _copy_experiment(source, made)
            _refuse_losses(source, made, copy)
        for path, target in zip(findings, paths, strict=True):
            content = _without_places(read_finding(path, FINDINGS[path.name]).content)
            _write_compact(new / target.parent.name / target.name, content)
        _replace(new, folder, Path(aside, "old"))
    return copies, paths


def _refuse_collisions(originals: list[Path], folder: Path) -> None:
    """Each result gets a folder of its own, and none lies in another result."""
    within = {folder.resolve(), *folder.resolve().parents}
    is_result = (folder / "spec.yaml").is_file() or any(findings_in(folder))
    taken: dict[Path, Path] = {}
    for original in originals:
        source = original.resolve()
        if is_result or source in within:
            raise UserError(f"{folder}: is a result or lies in one", "choose another folder")
        target = folder / source.name
        if taken.setdefault(target, source) != source:
            both = f"{taken[target]} and {source}: both would be {target}"
            raise UserError(both, "publish them into two folders, or rename one")
        _refuse_originals(target, original)


def _refuse_originals(target: Path, source: Path) -> None:
    """A copy may be replaced; what it was made from may not, nor what somebody trained."""
    if target.resolve() == source.resolve():
        raise UserError(f"{target}: would be replaced by itself", "choose another folder")
    for weights in target.glob("runs/*/checkpoints"):
        raise UserError(f"{weights}: weights, so {target} is no copy", "choose another folder")


def _refuse_losses(
    source: ExperimentDirectory, made: ExperimentDirectory, copy: ExperimentDirectory
) -> None:
    """Published runs go only where the experiment file, known whole, has no place for them."""
    spec, kept = source.read_spec(), {run.id for run in made.runs()}
    is_known = bool(kept) and not spec.unknown
    lost = [
        run.id
        for run in copy.runs()
        if run.id not in kept and (run.id in spec.runs() or not is_known)
    ]
    if lost:
        more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
        raise UserError(
            f"{copy.path}: {len(lost)} published run{'s' * (len(lost) > 1)} that "
            f"{source.path} has no results of would be lost: {', '.join(lost[:MOST_NAMED])}{more}",
            f"restore them in {source.path}, or delete {copy.runs_directory} first",
        )


def _replace(new: Path, folder: Path, old: Path) -> None:
    """Moves every record of `new` into `folder`, what was there into `old`; all or nothing."""
    done: list[tuple[Path, Path]] = []
    try:
        for source in sorted(new.glob("*/*")):
            target, kept = (each / source.relative_to(new) for each in (folder, old))
            for path in (target, kept):
                path.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                target.rename(kept)
            done.append((target, kept))
            source.rename(target)
    except BaseException:
        for target, kept in reversed(done):
            if target.is_dir():
                shutil.rmtree(target)
            target.unlink(missing_ok=True)
            if kept.exists():
                kept.rename(target)
        raise


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
    copy.runs_directory.mkdir(parents=True)
    shutil.copyfile(source.spec_file, copy.spec_file)
    write_text(copy.path / "commands.txt", "".join(f"{line}\n" for line in source.commands()))
    for identity in source.read_spec().runs():
        run = source.run(identity)
        if damage := run.damage():
            raise UserError(damage, "nothing was published")
        if run.current_state in STATES:
            _copy_run(run, copy.run(identity))


def _copy_run(source: RunDirectory, copy: RunDirectory) -> None:
    copy.path.mkdir()
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

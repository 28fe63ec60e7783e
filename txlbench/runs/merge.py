"""Brings results of several machines together: run directories are copied, never mixed.

Everything is compared before anything is written, so a refusal leaves all as it was. A run comes
whole or not at all, and the same call may be made again.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txlbench.config.grid import Experiment, expand
from txlbench.config.loading import Document
from txlbench.data.download import create_directory
from txlbench.errors import UserError
from txlbench.records.claim import is_claimed
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory, set_aside
from txlbench.training.checkpoint import same_training

OF_THE_MACHINE = frozenset(
    {"mlflow.json", "status.json", "facts.json", "timings.jsonl", "log.txt", "error.txt"}
)
"""Files of a run that say when and where it was trained, and so differ where nothing else does."""
SEEDS = "seeds"


@dataclass(frozen=True)
class Merged:
    """What became of one experiment.

    Attributes:
        copied: runs that the output lacked.
        known: runs that it had already, at least as far on.
        replaced: runs that it had less far on, set aside there.
    """

    directory: ExperimentDirectory
    copied: tuple[str, ...]
    known: tuple[str, ...]
    replaced: tuple[str, ...]


def merge(sources: Sequence[ExperimentDirectory], out: Path) -> list[Merged]:
    """Copies the runs of `sources` to experiments of the same names below `out`.

    Raises:
        UserError: if experiments of one name differ in more than seeds, if runs of one id have
            different content, or one is still being trained; then nothing was copied.
    """
    groups: dict[str, list[ExperimentDirectory]] = {}
    for source in sources:
        target = out / source.path.resolve().name
        group = groups.setdefault(target.name, [])
        if source.path.resolve() not in [target.resolve(), *(s.path.resolve() for s in group)]:
            group.append(source)
    plans = [_Plan.of(ExperimentDirectory(out / name), group) for name, group in groups.items()]
    return [plan.carry_out() for plan in plans]


@dataclass(frozen=True)
class _Plan:
    """What is to be done for one experiment: its file, and the run to have under each id."""

    target: ExperimentDirectory
    experiment: Experiment
    chosen: Mapping[str, RunDirectory]
    commands: tuple[str, ...]

    @classmethod
    def of(cls, target: ExperimentDirectory, sources: Sequence[ExperimentDirectory]) -> "_Plan":
        present = [target] if target.spec_file.is_file() else []
        every = [*present, *sources]
        chosen: dict[str, RunDirectory] = {}
        for run in (run for directory in every for run in directory.runs()):
            if is_claimed(run.path):
                raise UserError(f"{run.path}: still being worked on", "merge when it has ended")
            _refuse_links(run.path)
            other = chosen.get(run.id)
            chosen[run.id] = run if other is None else _farther(other, run)
        commands = tuple(command for directory in every for command in directory.commands())
        return cls(target, _joined(every), chosen, commands)

    def carry_out(self) -> Merged:
        copied, known, replaced = [], [], []
        for name, run in self.chosen.items():
            place = self.target.run(name)
            if place.path.resolve() == run.path.resolve():
                known.append(name)
                continue
            if place.path.exists():
                set_aside(place.path)
                replaced.append(name)
            else:
                copied.append(name)
            copy_run(run.path, place.path)
        self.target.write_spec(self.experiment)
        self.target.add_commands(self.commands)
        return Merged(self.target, tuple(copied), tuple(known), tuple(replaced))


def _joined(directories: Sequence[ExperimentDirectory]) -> Experiment:
    """The experiment of all `directories`, which may differ in their seeds."""
    first, *others = [directory.read_spec() for directory in directories]
    seeds = list(first.raw.get(SEEDS, [1]))
    for directory, other in zip(directories[1:], others, strict=True):
        key = _first_difference(first.raw, other.raw)
        if key:
            raise UserError(
                f"{directory.spec_file}: {key}: differs from {directories[0].spec_file}",
                "rename one of the two experiments; only seeds may differ",
            )
        seeds += [seed for seed in other.raw.get(SEEDS, [1]) if seed not in seeds]
    return expand(Document(str(directories[0].spec_file), {**first.raw, SEEDS: seeds}))


def _first_difference(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    keys = [key for key in {**one, **other} if key != SEEDS]
    return next((key for key in keys if one.get(key) != other.get(key)), "")


def _farther(one: RunDirectory, other: RunDirectory) -> RunDirectory:
    """The one of two directories of the same run that is farther on; `one` if none is.

    Raises:
        UserError: if neither continues the other.
    """
    first, second = _contents(one.path), _contents(other.path)
    metrics = Path(one.metrics_file.name)
    lines, more = (files.get(metrics, one.path / "none") for files in (first, second))
    short, long = sorted((_bytes(lines), _bytes(more)), key=len)
    if not long.startswith(short):
        raise _difference(one, other, metrics)
    configs = [_bytes(run.path / "config.yaml") for run in (one, other)]
    if all(configs) and configs[0] != configs[1]:
        raise _difference(one, other, Path("config.yaml"))
    ranks = [_rank(run) for run in (one, other)]
    if ranks[0] != ranks[1]:
        return one if ranks[0] > ranks[1] else other
    for name in sorted({*first, *second}):
        if name not in first or name not in second or not _are_equal(first[name], second[name]):
            raise _difference(one, other, name)
    return one


def _difference(one: RunDirectory, other: RunDirectory, name: Path) -> UserError:
    return UserError(
        f"{other.path / name}: differs from {one.path / name}: two trainings of one run",
        "keep the one you trust and move the other away",
    )


def _rank(run: RunDirectory) -> tuple[int, bool, int, bool]:
    """How far a run is: bytes of metrics, a summary, how much was measured, a configuration."""
    size = run.metrics_file.stat().st_size if run.metrics_file.exists() else 0
    measured = [*run.evaluations.glob("*.json"), *run.losses.glob("*.npz")]
    has_config = (run.path / "config.yaml").exists()  # a full disk may leave a run without
    return size, (run.path / "summary.json").exists(), len(measured), has_config


def _contents(run: Path) -> dict[Path, Path]:
    """The files that say what was trained and measured, by their place in the run."""
    return {
        path.relative_to(run): path
        for path in _files(run)
        if path.relative_to(run).parts[0] not in OF_THE_MACHINE
    }


def _files(run: Path) -> Iterator[Path]:
    for path in sorted(run.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path


def _refuse_links(run: Path) -> None:
    """A link may lead anywhere, and would be somebody else's file in the copy."""
    for path in (run, *run.rglob("*")):
        if path.is_symlink():
            raise UserError(f"{path}: a symbolic link", "replace it by what it leads to")


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _are_equal(one: Path, other: Path) -> bool:
    if one.stat().st_size == other.stat().st_size and _bytes(one) == _bytes(other):
        return True
    return one.suffix == ".pt" and same_training(one, other)


def copy_run(
    source: Path, target: Path, change: Callable[[RunDirectory], None] = lambda _: None
) -> None:
    """Copies a run whole or not at all; what MLflow has of it where it comes from stays there.

    Args:
        change: called with the copy before it is seen at `target`.
    """

    def fill(new: Path, scratch: Path) -> None:  # noqa: ARG001
        for path in _files(source):
            if path.name != "mlflow.json":
                place = new / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)
        change(RunDirectory(new))

    create_directory(target, fill)

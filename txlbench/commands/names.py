"""From what a user calls a run to its directory; whose weights they are else.

What models are called where they stand side by side: the shortest suffix that tells them.
"""

from collections.abc import Sequence
from pathlib import Path

from txlbench.errors import UserError, suggestion
from txlbench.records.experiment_directory import RESULTS, ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.tracking.backlog import run_directory_of


def shortest_suffixes(names: Sequence[str]) -> list[str]:
    """For each of `names` its last parts between slashes, as few as no other name ends in."""
    split = [name.strip("/").split("/") for name in names]
    return ["/".join(_suffix(parts, split)) for parts in split]


def _suffix(parts: list[str], all_parts: Sequence[list[str]]) -> list[str]:
    for length in range(1, len(parts)):
        suffix = parts[-length:]
        if sum(other[-length:] == suffix for other in all_parts) == 1:
            return suffix
    return parts


FOREIGN = ("hf", "torch", "tf")
"""Prefixes of somebody else's weights."""

FORMS = (
    "a run directory, EXPERIMENT/LABEL, EXPERIMENT/RUN-ID, runs:/ID, hf:DIR, torch:FILE, tf:PREFIX"
)


def is_foreign(reference: str) -> bool:
    """Whether `reference` names somebody else's weights, not a run."""
    kind, colon, _ = reference.partition(":")
    return bool(colon) and kind in FOREIGN


def find_run(reference: str, results: Path = RESULTS) -> RunDirectory:
    """The run directory that `reference` names."""
    if reference.startswith("runs:/"):
        return RunDirectory(run_directory_of(reference.removeprefix("runs:/"), results))
    if (Path(reference) / "config.yaml").is_file():
        return RunDirectory(Path(reference))
    name, _, wanted = reference.partition("/")
    experiment = ExperimentDirectory(results / name)
    if not wanted or not experiment.spec_file.is_file():
        raise UserError(f"{reference}: no such model", f"give {FORMS}")
    return _run_of(experiment, reference, wanted)


def _run_of(experiment: ExperimentDirectory, reference: str, wanted: str) -> RunDirectory:
    """The run of an experiment by id or by label."""
    if (experiment.run(wanted).path / "config.yaml").is_file():
        return experiment.run(wanted)
    lines = {line.label: line for line in experiment.read_spec().lines}
    if wanted not in lines:
        known = [*lines, *(run.id for run in experiment.runs())]
        raise UserError(f"{reference}: no such row or run", suggestion(wanted, known))
    run_ids = dict.fromkeys(lines[wanted].run_ids)
    if len(run_ids) > 1:
        choices = ", ".join(f"{experiment.path.name}/{each}" for each in run_ids)
        raise UserError(f"{reference}: {len(run_ids)} seeds go by that name", f"one of {choices}")
    run = experiment.run(next(iter(run_ids)))
    if not (run.path / "config.yaml").is_file():
        raise UserError(f"{reference}: not trained yet", f"txlbench ablate {experiment.spec_file}")
    return run

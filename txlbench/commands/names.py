"""Resolves the names of models to run directories, and gives models short titles."""

from collections.abc import Collection, Sequence
from pathlib import Path

from txlbench.config.run_config import EvaluateConfig
from txlbench.errors import UserError, suggestion
from txlbench.records.experiment_directory import RESULTS, ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.tracking.backlog import run_directory_of

FORMS = (
    "a run directory, EXPERIMENT/LABEL, EXPERIMENT/RUN-ID, runs:/ID, hf:DIR, hf:NAME, gguf:FILE, "
    "torch:FILE, tf:PREFIX, or a name of `txlbench models list`"
)


FRESH = (".yaml", ".yml")
"""Suffixes of experiment files, whose rows FILE.yaml:LABEL are models with random weights."""


def short_titles(
    references: Sequence[str], results: Path = RESULTS, whole: Collection[str] = ()
) -> list[str]:
    """For each reference its last parts, as few as no other one ends in.

    Parts are folders and files; a row's label is one part, with all that it contains, and so are
    names that are no paths, `whole`.
    """
    split = [[each] if each in whole else _parts(each, results) for each in references]
    return ["/".join(_suffix(parts, split)) for parts in split]


def _parts(reference: str, results: Path) -> list[str]:
    place, _, label = reference.partition(":")
    if place.endswith(FRESH):
        return [*place.split("/"), *filter(None, [label])]
    if is_row(reference, results):
        name, _, label = reference.partition("/")
        return [name, label]
    return reference.replace(":", "/").strip("/").split("/")


def _suffix(parts: list[str], all_parts: Sequence[list[str]]) -> list[str]:
    for length in range(1, len(parts)):
        suffix = parts[-length:]
        if sum("/".join(other[-length:]) == "/".join(suffix) for other in all_parts) == 1:
            return suffix
    return parts


def split_models(text: str, results: Path = RESULTS) -> tuple[str, ...]:
    """The models of a comma-separated list, in which labels may have commas of their own.

    At each place the longest stretch that names a file, a run or a row is taken.

    Raises:
        UserError: if there is nothing between two commas.
    """
    parts, models, start = text.split(","), [], 0
    while start < len(parts):
        ends = range(len(parts), start + 1, -1)
        joined = (end for end in ends if _exists(",".join(parts[start:end]).strip(), results))
        end = next(joined, start + 1)
        models.append(",".join(parts[start:end]).strip())
        start = end
    if not all(models):
        raise UserError(f"--models {text!r}: names no model somewhere", f"give {FORMS}")
    return tuple(models)


def is_row(reference: str, results: Path = RESULTS) -> bool:
    """Whether `reference` is EXPERIMENT/LABEL."""
    name, _, label = reference.partition("/")
    experiment = ExperimentDirectory(results / name)
    if not label or not _is_file(experiment.spec_file):
        return False
    spec = experiment.read_spec()
    return label in spec.unknown or spec.line(label) is not None


def settings_of_row(
    reference: str, run: RunDirectory, results: Path = RESULTS
) -> EvaluateConfig | None:
    """How the row that `reference` names measures its run; None if it names the run otherwise.

    Rows that differ in that alone share a run, whose own file has the first one's settings.
    """
    if is_run(reference, results) or not is_row(reference, results):
        return None
    name, _, label = reference.partition("/")
    line = ExperimentDirectory(results / name).read_spec().line(label)
    configs = () if line is None else zip(line.run_ids, line.configs, strict=True)
    return next((config.evaluate for identity, config in configs if identity == run.id), None)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _exists(reference: str, results: Path) -> bool:
    """Whether a file, a run or a row goes by that name."""
    try:
        return _is_file(Path(reference)) or bool(find_runs(reference, results))
    except UserError:
        return False


def is_run(reference: str, results: Path = RESULTS) -> bool:
    """Whether `reference` is the path of a run directory, or EXPERIMENT/RUN-ID."""
    return any(_is_file(path / "config.yaml") for path in (Path(reference), results / reference))


def find_run(reference: str, results: Path = RESULTS) -> RunDirectory:
    """The run directory that `reference` names; UserError if there is none, or more than one."""
    runs = find_runs(reference, results)
    if len(runs) > 1:
        choices = ", ".join(f"{reference.partition('/')[0]}/{run.id}" for run in runs)
        raise UserError(f"{reference}: {len(runs)} seeds go by that name", f"one of {choices}")
    return runs[0]


def find_runs(reference: str, results: Path = RESULTS) -> list[RunDirectory]:
    """The run directory that `reference` names, or those of every seed of the row it names.

    Raises:
        UserError: if there is no such run, or a seed of the row is not trained yet.
    """
    if reference.startswith("runs:/"):
        return [RunDirectory(run_directory_of(reference.removeprefix("runs:/"), results))]
    name, _, wanted = reference.partition("/")
    for path in (Path(reference), results / reference):
        if reference and _is_file(path / "config.yaml"):
            return [RunDirectory(path)]
    experiment = ExperimentDirectory(results / name)
    if not wanted or not _is_file(experiment.spec_file):
        raise UserError(f"{reference}: no such model", f"give {FORMS}")
    if _is_file(experiment.run(wanted).path / "config.yaml"):
        return [experiment.run(wanted)]
    return _runs_of_row(experiment, reference, wanted)


def _runs_of_row(experiment: ExperimentDirectory, reference: str, label: str) -> list[RunDirectory]:
    spec = experiment.read_spec()
    line = spec.line(label)
    if line is None:
        known = [*(each.label for each in spec.lines), *(run.id for run in experiment.runs())]
        raise UserError(f"{reference}: no such row or run", suggestion(label, known))
    runs = [experiment.run(identity) for identity in dict.fromkeys(line.run_ids)]
    for run in runs:
        if not (run.path / "config.yaml").is_file():
            raise UserError(
                f"{reference}: not trained yet", f"txlbench ablate {experiment.spec_file}"
            )
    return runs

"""Findings: what verbs other than `ablate` leave, each one JSON file beside what is shown of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from txlbench.errors import UserError
from txlbench.records.experiment_directory import (
    RESULTS,
    ExperimentDirectory,
    find_experiments,
)

FINDINGS = ("recl.json", "truth.json", "bench.json", "speed.json")
"""File names that are looked for."""


def findings_in(folder: Path) -> Iterator[Path]:
    """The findings of one result directory."""
    return (folder / name for name in FINDINGS if (folder / name).is_file())


def results_at(paths: Sequence[Path]) -> tuple[list[ExperimentDirectory], list[Path]]:
    """The experiments and the findings that `paths` name: result directories or folders of them.

    Raises:
        UserError: for a path that has neither; `results` is taken where none is given.
    """
    experiments: list[ExperimentDirectory] = []
    findings: list[Path] = []
    for path in paths or [RESULTS]:
        here = ExperimentDirectory(path)
        own = [here] if here.spec_file.is_file() else []
        found = list(findings_in(path))
        if not own and not found:
            own = list(find_experiments(path))
            below = sorted(path.iterdir()) if path.is_dir() else []
            found = [each for folder in below for each in findings_in(folder)]
        if not own and not found:
            raise UserError(
                f"{path}: no result found",
                "run `txlbench ablate`, or give a directory that it or another verb left",
            )
        experiments += own
        findings += found
    return experiments, findings

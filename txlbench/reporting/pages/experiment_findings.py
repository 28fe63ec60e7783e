"""Findings on the page of the experiment whose models they are about: RECL, speed and others."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from txlbench.errors import UserError
from txlbench.records.experiment_directory import (
    FINDINGS,
    ExperimentDirectory,
    find_experiments,
    findings_in,
)
from txlbench.records.finding_schema import Finding, TruthRecord, read_finding
from txlbench.reporting.findings import Presentation, named_damage, present
from txlbench.reporting.pages.page import PagePart, tables_of
from txlbench.reporting.pages.pictures import picture


def parts_about(experiment: ExperimentDirectory, run_ids: Collection[str]) -> list[PagePart]:
    """What other verbs measured of an experiment's models, from its own folder and those beside it.

    A finding that cannot be read is left out here, and named where its own page is made.
    """
    parts = []
    for folder in sorted({experiment.path, *experiment.path.parent.glob("*/")}):
        for path in findings_in(folder):
            with contextlib.suppress(UserError), named_damage(path):
                record = read_finding(path, FINDINGS[path.name])
                if _is_about(record, experiment.path.name, run_ids):
                    parts.append(_part(present(record, folder), folder.name))
    return parts


def experiments_of(path: Path) -> Iterator[ExperimentDirectory]:
    """The experiments beside the finding `path`, or in its folder, whose models it is about."""
    record = read_finding(path, FINDINGS[path.name])
    own = ExperimentDirectory(path.parent)
    places = [own] if own.spec_file.is_file() else find_experiments(path.parent.parent)
    for experiment in places:
        with contextlib.suppress(UserError):
            if _is_about(record, experiment.path.name, tuple(experiment.read_spec().runs())):
                yield experiment


def _is_about(record: Finding, experiment: str, run_ids: Collection[str]) -> bool:
    """Whether a model of `record` is a run of the experiment of that name."""
    if isinstance(record, TruthRecord):
        return any(row.run in run_ids for row in record.rows)
    places = [
        place
        for source in getattr(record, "models", {}).values()
        for place in (source.reference, getattr(source, "path", None) or "")
    ]
    parts = {part for place in places for part in Path(place).parts}
    return bool(parts & set(run_ids)) or any(place.startswith(f"{experiment}/") for place in places)


def _part(shown: Presentation, folder: str) -> PagePart:
    """Answers, first figure and main table; the finding's own page has the rest."""
    drawn = (picture(f"{folder}-{name}", draw, shown) for name, draw in shown.figures.items())
    main = shown.tables[0]
    return PagePart(
        f"{main.title} ({folder})",
        (*main.footer, shown.full),
        shown.answers,
        tuple(islice(filter(None, drawn), 1)),
        tables_of(replace(main, footer=())),
    )

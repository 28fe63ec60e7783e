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
    """Whether `record` names the experiment, or at least half of its models are runs of it.

    Experiments share runs: two of nine models would bring an answer about seven others.
    """
    if isinstance(record, TruthRecord):
        models = [[row.run] for row in record.rows]
    else:
        models = [
            [source.reference, getattr(source, "path", None) or ""]
            for source in getattr(record, "models", {}).values()
        ]
    if any(place.startswith(f"{experiment}/") for places in models for place in places):
        return True
    known = set(run_ids)
    own = sum(any(known & {*Path(place).parts} for place in places) for places in models)
    return 0 < len(models) <= 2 * own


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

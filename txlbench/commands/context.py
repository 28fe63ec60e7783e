"""`context`: every measure of context of groups of models, from losses that are kept."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from txlbench.commands.context_text import text_of
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.recl import (
    Groups,
    identity,
    is_loss_file,
    model_group,
    read_groups,
    recl_record,
    source_of,
    unit_of,
    with_seeds,
)
from txlbench.commands.recl_request import Progress, ReclRequest, Subject
from txlbench.commands.stored_losses import check_size, silent
from txlbench.errors import UserError
from txlbench.evaluation.context.context_report import NOT_DENSE, context_group
from txlbench.evaluation.recl.metric import ModelGroup, ReclTerms
from txlbench.machine import current_commit
from txlbench.records.context_schema import ContextRecord
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.finding_schema import ReclRecord
from txlbench.records.loss_file import check_agreement, check_contexts, read_loss_file
from txlbench.records.schema import DenseExponent
from txlbench.reporting.figures.style import Look

FEWEST_DENSE = 8
"""Contexts 1, 2, 3, ... that count as dense where nobody asked for any."""


@dataclass(frozen=True)
class ContextRequest(ReclRequest):
    """A call of `context`: as of `recl`, with dense contexts.

    Attributes:
        dense: L, for losses at every context from 1 to 2 L.
    """

    dense: int | None = None

    def at_dense(self, length: int) -> "ContextRequest":
        """The same request at the contexts 1 to 2 `length`."""
        return replace(self, contexts=tuple(range(1, 2 * length + 1)))


def run_context(
    request: ContextRequest, progress: Progress = silent, look: Look | None = None
) -> PublishedFinding:
    """Measures every group and writes context.json, tables, figures and a page.

    Raises:
        UserError: if losses cannot be had or compared; nothing is written then.
    """
    directory = request.out or RESULTS / f"context-{identity(request)}"
    return publish(directory / "context.json", lambda: measure_context(request, progress), look)


def measure_context(request: ContextRequest, progress: Progress = silent) -> ContextRecord:
    """Measures every group. Writes nothing but losses, and exponents beside the runs' own."""
    asked, rows = with_seeds(_thinned(request))
    if asked.dense is not None:
        models = {name for group in asked.groups for name in group if not is_loss_file(name)}
        check_size(models, asked.at_dense(asked.dense))
    groups = read_groups(asked, progress, check=None)
    for group in groups:
        check_agreement([subject.losses for subject in group])
    check_contexts([group[0].losses for group in groups])
    dense, why_not = _dense_groups(groups, asked, progress)
    terms = ReclTerms(asked.shares, asked.threshold, asked.seed)
    subjects = {subject.title: subject for group in groups for subject in group}
    recl, recl_missing = _recl(groups, asked, rows)
    found = ContextRecord(
        schema=ContextRecord.SCHEMA,
        threshold=terms.threshold,
        contexts=tuple(groups[0][0].losses.contexts.tolist()),
        dense=asked.dense,
        seed=terms.seed,
        unit=unit_of(list(subjects.values())),
        commit=current_commit(),
        command=asked.command,
        models={title: source_of(subject) for title, subject in subjects.items()},
        groups=tuple(
            context_group(
                model_group(group),
                terms,
                text_of(group),
                each,
                why_not,
                by_token=group[0].losses.bytes is None,
            )
            for group, each in zip(groups, dense, strict=True)
        ),
        recl=recl,
        recl_missing=recl_missing,
    )
    _note_exponents(groups, found)
    return found


def _note_exponents(groups: Groups, record: ContextRecord) -> None:
    """Leaves exponents with the runs they are of, for the tables of their experiments."""
    for subjects, group in zip(groups, record.groups, strict=True):
        runs = {subject.title: subject.ref.run for subject in subjects if subject.ref is not None}
        measured = group.mutual_information
        for each in measured.exponents if measured else ():
            run, found = runs.get(each.model), each.exponent
            if run is not None and found is not None and measured is not None:
                note = DenseExponent(
                    length=each.lengths[-1],
                    tokens=measured.tokens,
                    way=each.way,
                    value=found.value,
                    low=found.low,
                    high=found.high,
                )
                with contextlib.suppress(OSError):  # somebody else's runs may be read only
                    run.write_exponent(note)


def _thinned(request: ContextRequest) -> ContextRequest:
    """The request with contexts that are fit for RECL where files have every context to 2 L."""
    names = list(dict.fromkeys(name for group in request.groups for name in group))
    if request.contexts or not request.dense or not all(map(is_loss_file, names)):
        return request
    found = read_loss_file(Path(names[0])).contexts.tolist()
    step = max(1, request.dense // 4)
    kept = tuple(c for c in found if c % step == 0 or c > 2 * request.dense)
    return replace(request, contexts=kept) if len(kept) > 1 else request


def _recl(
    groups: Groups, request: ContextRequest, rows: dict[str, list[str]]
) -> tuple[ReclRecord | None, str | None]:
    """What `recl` finds, or why it refuses."""
    try:
        return recl_record(groups, request, rows), None
    except UserError as error:
        return None, error.problem


def _dense_groups(
    groups: Groups, request: ContextRequest, progress: Progress
) -> tuple[Sequence[ModelGroup | None], str]:
    """The groups at dense contexts, or why there are none."""
    if request.dense is None:
        return [_dense_part(group) for group in groups], NOT_DENSE
    try:
        found = read_groups(request.at_dense(request.dense), progress, check=None)
        for group in found:
            check_agreement([subject.losses for subject in group])
    except UserError as error:
        return [None] * len(groups), error.problem
    return [model_group(group) for group in found], ""


def _dense_part(group: Sequence[Subject]) -> ModelGroup | None:
    """The contexts 1, 2, 3, ... of losses that begin so; None if they do not."""
    contexts = group[0].losses.contexts
    count = int(np.count_nonzero(contexts == np.arange(1, len(contexts) + 1)))
    if count < FEWEST_DENSE:
        return None
    whole = model_group(group)
    return replace(whole, losses=whole.losses[:, :count], contexts=whole.contexts[:count])

"""The content of recl.json: every group measured, and where its losses come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from txlbench.errors import UserError
from txlbench.evaluation.recl.group import Group, Terms
from txlbench.evaluation.recl.null import LEVEL
from txlbench.evaluation.recl.report import group_report
from txlbench.execution.commit import current_commit
from txlbench.execution.recl_request import ReclRequest, Subject
from txlbench.records.agreement import check_agreement, check_contexts

SCHEMA = "txlbench.recl/1"


def recl_record(groups: Sequence[Sequence[Subject]], request: ReclRequest) -> dict[str, Any]:
    """What is found of models whose losses are there.

    Raises:
        UserError: if models of a group differ in what they were scored on, groups in their
            contexts, or there is too little to measure.
    """
    for group in groups:
        check_agreement([subject.losses for subject in group])
    check_contexts([group[0].losses for group in groups])
    subjects = {subject.title: subject for group in groups for subject in group}
    terms = Terms(request.shares, request.threshold, request.seed)
    return {
        "schema": SCHEMA,
        "threshold": terms.threshold,
        "level": LEVEL,
        "contexts": groups[0][0].losses.contexts.tolist(),
        "r": list(terms.shares),
        "seed": terms.seed,
        "unit": _unit(list(subjects.values())),
        "commit": current_commit(),
        "command": request.command,
        "models": {title: _source(subject) for title, subject in subjects.items()},
        "groups": [_measured(group, terms) for group in groups],
    }


def _measured(subjects: Sequence[Subject], terms: Terms) -> dict[str, Any]:
    """The entry of one group, with the paper's numbers beside its own."""
    first = subjects[0].losses
    if len(first.contexts) < 2:
        raise UserError(
            f"{first.title}: one context, {first.contexts[0]}", "RECL compares at least two"
        )
    group = Group(
        names=tuple(subject.title for subject in subjects),
        losses=np.stack([subject.losses.losses for subject in subjects]).astype(np.float64),
        contexts=tuple(first.contexts.tolist()),
        positions=first.positions,
        longest=tuple(subject.losses.longest for subject in subjects),
        with_resets={
            subject.title: subject.with_resets.losses.astype(np.float64)
            for subject in subjects
            if subject.with_resets is not None
        },
    )
    found = group_report(group, terms)
    papers = {subject.title: subject.paper for subject in subjects}
    for line in found["results"]:
        line["paper"] = papers[line["model"]].get(f"recl_r{float(line['r'])}")
    return found


def _unit(subjects: Sequence[Subject]) -> str:
    """bpc where every model's losses are of characters or bytes, else perplexity."""
    units = {subject.losses.settings.get("unit") for subject in subjects}
    return "bpc" if units == {"bpc"} else "ppl"


def _source(subject: Subject) -> dict[str, Any]:
    losses = subject.losses
    return {
        "reference": subject.reference,
        "path": None if losses.path is None else str(losses.path),
        "corpus": losses.corpus,
        "split": losses.split,
        "vocabulary": losses.vocabulary,
        "model": losses.model,
        "longest": losses.longest,
        "settings": dict(losses.settings),
    }

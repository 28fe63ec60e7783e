"""`recl`: losses of every model, the metric over each group, and what is written of it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from txlbench.config.identity import fingerprint
from txlbench.config.section import Split
from txlbench.errors import UserError
from txlbench.execution.naming import shortest_suffixes
from txlbench.execution.publishing import Published, publish
from txlbench.execution.recl_record import recl_record
from txlbench.execution.recl_request import DEFAULT_CONTEXTS, ReclRequest, Subject
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.loss_file import read_loss_file
from txlbench.reporting.recl.report import report_recl

LossesOf = Callable[[str, ReclRequest], Subject]
"""Gives a model that is not a loss file; the request has its contexts filled in."""
UNHASHED = ("out", "command", "device", "batch_size", "positions")
"""What of a request changes no number."""


def run_recl(request: ReclRequest, losses_of: LossesOf) -> Published:
    """Measures every group and writes recl.json, tables and figures.

    Args:
        losses_of: called for the models that are no loss files.

    Raises:
        UserError: if losses cannot be had or compared; nothing is written then.
    """
    directory = request.out or RESULTS / f"recl-{identity(request)}"
    return publish(
        directory / "recl.json",
        lambda: recl_record(read_groups(request, losses_of), request),
        lambda place: report_recl(place, request.command),
    )


def warnings_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What should keep a reader from believing too much, each once."""
    found = [warning for group in record["groups"] for warning in group["warnings"]]
    return tuple(dict.fromkeys(found))


def identity(request: ReclRequest) -> str:
    """Hash of what was asked for: the same question has the same place."""
    fields = {key: value for key, value in vars(request).items() if key not in UNHASHED}
    return fingerprint(fields)


def read_groups(request: ReclRequest, losses_of: LossesOf) -> list[list[Subject]]:
    """The models of each group in the order given, each once, whatever it was called."""
    references = list(dict.fromkeys(name for group in request.groups for name in group))
    subjects = _read(references, request, losses_of)
    first: dict[str, str] = {}
    for name in references:
        same = (one for one in first.values() if subjects[one].is_same_model(subjects[name]))
        first[name] = next(same, name)
    distinct = list(dict.fromkeys(first.values()))
    titled = dict(zip(distinct, _titled([subjects[name] for name in distinct]), strict=True))
    return [
        [titled[name] for name in dict.fromkeys(first[name] for name in group)]
        for group in request.groups
    ]


def is_loss_file(reference: str) -> bool:
    return reference.endswith(".npz")


def _read(
    references: Sequence[str], request: ReclRequest, losses_of: LossesOf
) -> dict[str, Subject]:
    """Loss files first: they say which positions, and unless asked for which contexts, models get.

    Raises:
        UserError: also for what is asked of models where there are only loss files.
    """
    files = {name: _from_file(name, request) for name in references if is_loss_file(name)}
    if len(files) == len(references):
        _refuse_options_of_models(request)
    asked = request
    if files:
        first = next(iter(files.values())).losses
        contexts = request.contexts or tuple(first.contexts.tolist())
        split = request.split or next((s for s in get_args(Split) if s == first.split), None)
        asked = replace(request, contexts=contexts, positions=first.positions, split=split)
    elif request.contexts is None:
        asked = replace(request, contexts=DEFAULT_CONTEXTS)
    return files | {name: losses_of(name, asked) for name in references if name not in files}


def _refuse_options_of_models(request: ReclRequest) -> None:
    for name in ("corpus", "level", "attention_length", "batch_size"):
        value = getattr(request, name)
        if value is not None:
            option = name.replace("_", "-")
            raise UserError(f"--{option} {value}: is of models, not of loss files", "drop it")


def _from_file(name: str, request: ReclRequest) -> Subject:
    """What of a loss file was asked for."""
    file = read_loss_file(Path(name))
    if None not in (file.split, request.split) and file.split != request.split:
        raise UserError(
            f"{file.title}: split {file.split!r} found", f"it has nothing of {request.split!r}"
        )
    if request.contexts is not None:
        file = file.at(request.contexts)
    if request.tokens is not None:
        file = file.first(request.tokens)
    return Subject(name, file)


def _titled(subjects: Sequence[Subject]) -> list[Subject]:
    """`subjects` with titles that tell them apart."""
    names = [_name(subject) for subject in subjects]
    count = Counter(names)
    full = [
        name if count[name] == 1 else subject.reference.removesuffix(".npz")
        for name, subject in zip(names, subjects, strict=True)
    ]
    titles = shortest_suffixes(full)
    return [replace(each, title=title) for each, title in zip(subjects, titles, strict=True)]


def _name(subject: Subject) -> str:
    """What a loss file calls itself, else what the user did."""
    if is_loss_file(subject.reference) and subject.losses.name:
        return subject.losses.name
    return subject.reference.removesuffix(".npz")

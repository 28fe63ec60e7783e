"""`recl`: collects the losses of every model, measures each group and writes the finding."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar, get_args

import numpy as np

from txlbench.commands.model_ref import resolve_seeds
from txlbench.commands.names import is_row, is_run, short_titles
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, Progress, ReclRequest, Subject
from txlbench.commands.stored_losses import Check, losses_of_all, silent
from txlbench.config.base import Split
from txlbench.config.identity import fingerprint
from txlbench.errors import UserError
from txlbench.evaluation.recl.group_report import group_report
from txlbench.evaluation.recl.metric import ModelGroup, ReclTerms
from txlbench.evaluation.recl.null import LEVEL, check_count
from txlbench.machine import current_commit
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.finding_schema import ReclGroup, ReclRecord, ReclSource, SeedEstimate
from txlbench.records.loss_file import check_agreement, check_contexts, read_loss_file
from txlbench.reporting.figures.style import Look
from txlbench.reporting.rows import estimate

RequestT = TypeVar("RequestT", bound=ReclRequest)
Groups = Sequence[Sequence[Subject]]
"""The models of each group."""


def recl_record(
    groups: Groups,
    request: ReclRequest,
    rows: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ReclRecord:
    """Measures groups of models whose losses are there.

    Args:
        rows: references of the seeds of each row that has several.

    Raises:
        UserError: if models of a group differ in what they were scored on, groups in their
            contexts, or there is too little to measure.
    """
    for group in groups:
        check_agreement([subject.losses for subject in group])
    check_contexts([group[0].losses for group in groups])
    subjects = {subject.title: subject for group in groups for subject in group}
    terms = ReclTerms(request.shares, request.threshold, request.seed)
    measured = tuple(_measured(group, terms) for group in groups)
    titles = {subject.reference: subject.title for subject in subjects.values()}
    seeds = {row: [titles[each] for each in runs if each in titles] for row, runs in rows.items()}
    return ReclRecord(
        schema=ReclRecord.SCHEMA,
        threshold=terms.threshold,
        level=LEVEL,
        contexts=tuple(groups[0][0].losses.contexts.tolist()),
        r=terms.shares,
        seed=terms.seed,
        unit=unit_of(list(subjects.values())),
        commit=current_commit(),
        command=request.command,
        models={title: source_of(subject) for title, subject in subjects.items()},
        groups=measured,
        seeds=tuple(_over_seeds(measured, seeds, terms.shares)),
    )


def _over_seeds(
    groups: Sequence[ReclGroup], rows: Mapping[str, Sequence[str]], shares: Sequence[float]
) -> Iterator[SeedEstimate]:
    """Means of each row over its seeds, each in the first group that it is in."""
    for row, models in rows.items():
        homes = [next(group for group in groups if model in group.models) for model in models]
        for r in shares:
            lines = [group.result(each, r) for group, each in zip(homes, models, strict=True)]
            recl, above = (
                estimate([float(getattr(line, name)) for line in lines])
                for name in ("recl", "recl_above_null")
            )
            assert recl is not None
            assert above is not None
            yield SeedEstimate(
                row=row,
                runs=tuple(models),
                r=r,
                recl=(recl.mean, recl.half_width or 0.0),
                recl_above_null=(above.mean, above.half_width or 0.0),
            )


def with_seeds(request: RequestT) -> tuple[RequestT, dict[str, list[str]]]:
    """The request with rows of several seeds as runs, and the runs of each such row.

    A group becomes one for each seed, in which rows meet at their first, second, ... seeds; what
    has one seed only is in all of them.

    Raises:
        UserError: if rows of a group have different numbers of seeds.
    """
    rows = {
        name: [ref.reference for ref in resolve_seeds(name, request.checkpoint)]
        for name in dict.fromkeys(name for group in request.groups for name in group)
        if is_row(name)
    }
    several = {name: runs for name, runs in rows.items() if len(runs) > 1}
    groups = [each for group in request.groups for each in _by_seed(group, several)]
    return replace(request, groups=tuple(groups)), several


def _by_seed(
    group: tuple[str, ...], several: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    counts = {name: len(several[name]) for name in group if name in several}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"--models: {found} seeds", "give rows of equally many, or single runs")
    for index in range(max(counts.values(), default=1)):
        yield tuple(several[name][index] if name in several else name for name in group)


def _measured(subjects: Sequence[Subject], terms: ReclTerms) -> ReclGroup:
    """The entry of one group, with the paper's numbers beside its own."""
    first = subjects[0].losses
    if len(first.contexts) < 2:
        raise UserError(
            f"{first.title}: one context, {first.contexts[0]}", "RECL compares at least two"
        )
    papers = {subject.title: subject.paper for subject in subjects}
    return group_report(model_group(subjects), terms, papers)


def model_group(subjects: Sequence[Subject]) -> ModelGroup:
    """The losses of a group that was found to agree, in float64."""
    first = subjects[0].losses
    return ModelGroup(
        names=tuple(subject.title for subject in subjects),
        losses=np.stack([subject.losses.nats for subject in subjects]),
        contexts=tuple(first.contexts.tolist()),
        positions=first.positions,
        longest=tuple(subject.losses.longest for subject in subjects),
        with_resets={
            subject.title: subject.with_resets.nats
            for subject in subjects
            if subject.with_resets is not None
        },
    )


def unit_of(subjects: Sequence[Subject]) -> Literal["bpc", "bpb", "ppl"]:
    """bpb on the same bytes, bpc where every model reads characters or bytes, else perplexity."""
    if subjects[0].losses.bytes is not None:
        return "bpb"
    units = {subject.losses.settings.get("unit") for subject in subjects}
    return "bpc" if units == {"bpc"} else "ppl"


def source_of(subject: Subject) -> ReclSource:
    losses = subject.losses
    return ReclSource(
        reference=subject.reference,
        path=None if losses.path is None else str(losses.path),
        corpus=losses.corpus,
        split=losses.split,
        vocabulary=losses.vocabulary,
        model=losses.model,
        longest=losses.longest,
        settings=dict(losses.settings),
    )


UNHASHED = ("out", "command", "device", "batch_size", "positions")
"""Fields of a request that change no number."""
ADDED: Mapping[str, object] = {"precision": "fp32", "sinks": None}
"""Fields that came later, with the values that leave earlier hashes as they were."""


def run_recl(
    request: ReclRequest, progress: Progress = silent, look: Look | None = None
) -> PublishedFinding:
    """Measures every group and writes recl.json, tables and figures.

    Args:
        progress: told how far the models are that are no loss files.
        look: of the figures; their usual one without it.

    Raises:
        UserError: if losses cannot be had or compared; nothing is written then.
    """
    directory = request.out or RESULTS / f"recl-{identity(request)}"
    return publish(directory / "recl.json", lambda: measure_recl(request, progress), look)


def share_windows(request: ReclRequest) -> None:
    """Computes this process's part of the losses that the first of torchrun's processes writes."""
    read_groups(with_seeds(request)[0])


def measure_recl(request: ReclRequest, progress: Progress = silent) -> ReclRecord:
    """Measures every group; rows of several seeds seed by seed. Writes nothing but losses."""
    asked, rows = with_seeds(request)
    return recl_record(read_groups(asked, progress), asked, rows)


def identity(request: ReclRequest) -> str:
    """Hash of what was asked for: the same question has the same place."""
    fields = {key: value for key, value in vars(request).items() if key not in UNHASHED}
    return fingerprint({k: v for k, v in fields.items() if k not in ADDED or v != ADDED[k]})


def read_groups(
    request: ReclRequest, progress: Progress = silent, check: Check | None = check_count
) -> list[list[Subject]]:
    """The models of each group in the order given, each once, whatever it was called.

    Args:
        check: refuses positions before any model is read at them.
    """
    references = list(dict.fromkeys(name for group in request.groups for name in group))
    subjects = _read(references, request, progress, check)
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
    references: Sequence[str], request: ReclRequest, progress: Progress, check: Check | None
) -> dict[str, Subject]:
    """Subjects by reference; positions and contexts of the loss files hold for the models too.

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
        split = request.split or next(
            (s for s in (*get_args(Split), "all") if s == first.split), None
        )
        asked = replace(request, contexts=contexts, positions=first.positions, split=split)
    elif request.contexts is None:
        asked = replace(request, contexts=DEFAULT_CONTEXTS)
    models = [name for name in references if name not in files]
    return files | losses_of_all(models, asked, progress, check)


def _refuse_options_of_models(request: ReclRequest) -> None:
    for name in ("corpus", "level", "attention_length", "batch_size"):
        value = getattr(request, name)
        if value is not None:
            option = name.replace("_", "-")
            raise UserError(f"--{option} {value}: is of models, not of loss files", "drop it")


def _from_file(name: str, request: ReclRequest) -> Subject:
    """The part of a loss file that was asked for."""
    file = read_loss_file(Path(name))
    if None not in (file.split, request.split) and file.split != request.split:
        raise UserError(
            f"{file.title}: split {file.split!r} found", f"it has nothing of {request.split!r}"
        )
    if request.contexts is not None:
        file = file.at(request.contexts)
    if request.tokens is not None:
        file = file.spread(request.tokens)
    return Subject(name, file)


def _titled(subjects: Sequence[Subject]) -> list[Subject]:
    """`subjects` with titles that tell them apart."""
    names = [_name(subject) for subject in subjects]
    count = Counter(names)
    full = [
        name if count[name] == 1 else subject.reference.removesuffix(".npz")
        for name, subject in zip(names, subjects, strict=True)
    ]
    given = {subject.losses.name for subject in subjects if is_loss_file(subject.reference)}
    whole = {
        name
        for name in full
        if name in given and "/" in name and not (is_row(name) or is_run(name))
    }
    titles = short_titles(full, whole=whole)
    return [replace(each, title=title) for each, title in zip(subjects, titles, strict=True)]


def _name(subject: Subject) -> str:
    """The name that stands in a loss file, else the one that the user typed."""
    if is_loss_file(subject.reference) and subject.losses.name:
        return subject.losses.name
    return subject.reference.removesuffix(".npz")

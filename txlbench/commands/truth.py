"""`truth`: losses and RECL of runs on `planted`, beside the exact ones, which are known.

Of the seeds of a row the one with the lowest validation loss is shown: which seed learns all lags
is luck of its training, and not a question of RECL.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.recl_request import Progress, ReclRequest, Subject
from txlbench.commands.stored_losses import losses_of_all, silent
from txlbench.config.grid import Line
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import CorpusConfig, RunConfig
from txlbench.data.planted import PROCESS, Planted
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.evaluation.eval_streams import streaming_optimum
from txlbench.evaluation.recl.group_report import group_report
from txlbench.evaluation.recl.metric import ModelGroup, ReclTerms
from txlbench.evaluation.recl.null import check_count
from txlbench.machine import current_commit
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.finding_schema import Streaming, TruthRecl, TruthRecord, TruthRow
from txlbench.records.run_directory import RunDirectory
from txlbench.reporting.figures.style import Look

CONTEXTS = (32, 96, 160, 224, 288)
"""Between any two lies one lag of the corpus, and none after the last but one."""


@dataclass(frozen=True)
class Judged:
    """A row of the experiment, by the run that stands for it."""

    label: str
    run: RunDirectory
    config: RunConfig
    valid_loss: float


def hold_against_truth(
    directory: ExperimentDirectory,
    request: ReclRequest,
    progress: Progress = silent,
    look: Look | None = None,
) -> PublishedFinding:
    """Measures every row of an experiment on `planted`; writes truth.json, a page and a figure.

    Args:
        request: contexts, shares, tokens, device, place; its groups are not looked at.

    Raises:
        UserError: if the experiment is of another corpus, or nothing of it is trained.
    """
    rows = list(_judged(directory))
    if not rows:
        raise UserError(f"{directory.path}: no run is finished", "run `make planted`")
    place = request.out or directory.path.with_name(f"{directory.path.name}-truth")
    return publish(place / "truth.json", lambda: _record(rows, request, progress), look)


def _record(rows: Sequence[Judged], request: ReclRequest, progress: Progress) -> TruthRecord:
    terms = ReclTerms(request.shares, request.threshold, request.seed)
    found = losses_of_all([str(row.run.path) for row in rows], request, progress, check_count)
    return TruthRecord(
        schema=TruthRecord.SCHEMA,
        contexts=request.contexts or CONTEXTS,
        r=terms.shares,
        threshold=terms.threshold,
        commit=current_commit(),
        command=request.command,
        rows=tuple(_row(row, found[str(row.run.path)], terms) for row in rows),
    )


def _judged(directory: ExperimentDirectory) -> Iterator[Judged]:
    """The best seed of each row, as far as it is finished."""
    for line in directory.read_spec().lines:
        seeds = list(_finished(directory, line))
        if seeds:
            yield min(seeds, key=lambda each: each.valid_loss)


def _finished(directory: ExperimentDirectory, line: Line) -> Iterator[Judged]:
    for identity, config in zip(line.run_ids, line.configs, strict=True):
        if config.corpus.name != Planted.name:
            raise UserError(
                f"{directory.spec_file}: corpus {config.corpus.name}",
                f"the truth is known of {Planted.name} only",
            )
        run = directory.run(identity)
        summary = run.read_summary()
        if summary.results is not None and summary.training is not None:
            loss = summary.training.best_valid_loss
            yield Judged(line.label, run, config, math.inf if loss is None else loss)


def _row(row: Judged, subject: Subject, terms: ReclTerms) -> TruthRow:
    """Measured losses and RECL of a run, beside the best of any model that sees as far."""
    measured = subject.losses
    known = known_losses(row.config, measured.positions, measured.contexts)
    found, true = (
        group_report(_alone(row.label, losses, measured.contexts, measured.positions), terms)
        for losses in (measured.losses.astype(np.float64), known)
    )
    return TruthRow(
        label=row.label,
        run=row.run.id,
        seed=row.config.seed,
        mem_len=row.config.train.memory,
        memory_reset=row.config.train.memory_reset,
        valid_loss=row.valid_loss,
        tokens=len(measured.positions),
        streaming=_streaming(row),
        losses=found.losses[row.label],
        known=true.losses[row.label],
        recl=tuple(
            TruthRecl(
                r=ours.r,
                recl=ours.recl,
                recl_above_null=ours.recl_above_null,
                true=exact.recl_above_null,
            )
            for ours, exact in zip(found.results, true.results, strict=True)
        ),
    )


def known_losses(
    config: RunConfig, positions: NDArray[np.int64], contexts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The lowest losses [C, T] of a model that learned what its memory showed it in training.

    Lags beyond memory and segment were never to be seen, so that a longer context is none.
    """
    reach = max(config.train.memory, config.train.tgt_len)
    ids = prepare(CorpusConfig(name=Planted.name)).ids("test")
    return PROCESS.losses(ids, positions[None, :], np.minimum(contexts, reach)[:, None])


def _alone(
    name: str, losses: NDArray[np.float64], contexts: NDArray[np.int64], at: NDArray[np.int64]
) -> ModelGroup:
    return ModelGroup((name,), losses[None], tuple(contexts.tolist()), at, (None,))


def _streaming(row: Judged) -> Streaming:
    """The loss in the regime of training, and the optimum of the same tokens with what they see."""
    measurement = training_regime(row.config, "test")
    ids = prepare(CorpusConfig(name=Planted.name)).ids("test")
    found = row.run.read_evaluation(measurement)
    if found is None:
        raise UserError(f"{row.run.path}: {measurement.key} was not measured", "run ablate again")
    optimum = streaming_optimum(PROCESS, ids, measurement, row.config.model.n_layer)
    return Streaming(loss=found.loss, optimum=optimum, tokens=found.tokens)

"""Measures a trained run: missing evaluations are computed, stored, and summed up."""

import time
from collections.abc import Callable, Sequence

import torch

from txlbench.config.base import Split
from txlbench.config.identity import hashed_fields
from txlbench.config.measurements import (
    Measurement,
    at_attention_length,
    attention_lengths,
    by_position,
    training_regime,
)
from txlbench.config.run_config import EvaluateConfig, RunConfig
from txlbench.data.corpus import Corpus
from txlbench.evaluation.scoring import best_length, score, shortest_length
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import BlockLosses, EvaluationRecord, Outcome, SweepPoint
from txlbench.runs.checkpointer import best_checkpoint
from txlbench.runs.plan import missing, with_evaluation
from txlbench.world import ALONE, World

BLOCK_DIGITS = 6
"""Digits after the point of losses by block: their sampling error is far larger."""


def load_best(
    run: RunDirectory, config: RunConfig, corpus: Corpus, device: torch.device, world: World = ALONE
) -> tuple[LanguageModel, int]:
    """The model of the run's best checkpoint in evaluation mode, and the checkpoint's step.

    The process that writes reads it first, as it may have to mend it.

    Raises:
        UserError: if that checkpoint is damaged and cannot be made again.
    """
    model = build_model(config.model, len(corpus.vocabulary)).to(device)
    mended = best_checkpoint(run) if world.writes else None
    world.tell("")
    checkpoint = mended or best_checkpoint(run)
    model.load_state_dict(checkpoint["model"])
    return model.eval(), int(checkpoint["progress"]["step"])


def measure(
    run: RunDirectory,
    config: RunConfig,
    corpus: Corpus,
    device: torch.device,
    evaluations: Sequence[EvaluateConfig],
    should_stop: Callable[[], bool],
    world: World = ALONE,
) -> bool:
    """Fills in the run's missing records and writes the results into its summary.

    Processes that share the run divide each measurement, and one of them writes.

    Args:
        should_stop: asked before each measurement.

    Returns:
        Whether all is measured; False if it was asked to stop before.
    """
    todo = missing(run, config, evaluations)
    if todo:
        model, step = load_best(run, config, corpus, device, world)
        for measurement in todo:
            if any(world.agree(should_stop())):
                return False
            record = _record(model, config, corpus, device, measurement, step, world)
            if world.writes:
                run.write_evaluation(record)
    if not world.writes:
        return True
    results = tuple(_outcome(run, with_evaluation(config, evaluate)) for evaluate in evaluations)
    run.write_summary(run.read_summary().model_copy(update={"results": results}))
    return True


def _record(
    model: LanguageModel,
    config: RunConfig,
    corpus: Corpus,
    device: torch.device,
    measurement: Measurement,
    step: int,
    world: World,
) -> EvaluationRecord:
    begin, ids = time.monotonic(), corpus.ids(measurement.split)
    scored = score(model, ids, measurement, config.model.n_layer, device, world=world)
    return EvaluationRecord(
        measurement=measurement,
        loss=scored.loss,
        tokens=scored.tokens,
        dropped=scored.dropped,
        cold_starts=scored.cold_starts,
        by_position=tuple(scored.by_position),
        errors_by_position=tuple(scored.errors_by_position),
        blocks=BlockLosses(
            targets=scored.targets,
            losses=tuple(round(loss, BLOCK_DIGITS) for loss in scored.by_block),
        ),
        checkpoint="best",
        step=step,
        dtype=scored.dtype,
        attention=scored.attention,
        device=str(device),
        seconds=time.monotonic() - begin,
    )


def _outcome(run: RunDirectory, config: RunConfig) -> Outcome:
    """PPL init, PPL best and attention length: chosen on valid, reported on the split.

    The training regime is a candidate too, so that the best is not worse than it on valid. Where
    it is the best, as in a model without attention, there is no best length.
    """
    split = config.evaluate.split
    init = _read(run, training_regime(config, split))
    sweeps = {each: _sweep(run, config, each) for each in dict.fromkeys(("valid", split))}
    losses = {length: record.loss for length, record in sweeps["valid"].items()}
    regime = _read(run, training_regime(config, "valid")).loss
    best = best_length(losses, regime)
    return Outcome(
        evaluate=hashed_fields(config.evaluate),
        init=init,
        best=sweeps[split][best] if best else init,
        best_length=best,
        attention_length=shortest_length(losses, config.evaluate.tolerance, regime),
        sweep=tuple(
            SweepPoint(attention_length=length, split=each, loss=record.loss, tokens=record.tokens)
            for each, records in sweeps.items()
            for length, record in records.items()
        ),
        by_position=_read(run, by_position(config, split)),
    )


def _sweep(run: RunDirectory, config: RunConfig, split: Split) -> dict[int, EvaluationRecord]:
    return {
        length: _read(run, at_attention_length(config, split, length))
        for length in attention_lengths(config)
    }


def _read(run: RunDirectory, measurement: Measurement) -> EvaluationRecord:
    record = run.read_evaluation(measurement)
    assert record is not None, measurement.key
    return record

"""Measures a trained run: missing evaluations are computed, stored, and summed up."""

import time
from collections.abc import Callable, Sequence

import torch

from txlbench.config.base import Split
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
from txlbench.records.schema import EvaluationRecord, Outcome, SweepPoint
from txlbench.runs.checkpointer import best_checkpoint
from txlbench.runs.plan import missing, with_evaluation


def load_best(
    run: RunDirectory, config: RunConfig, corpus: Corpus, device: torch.device
) -> tuple[LanguageModel, int]:
    """The model of the run's best checkpoint in evaluation mode, and the checkpoint's step.

    Raises:
        UserError: if that checkpoint is damaged and cannot be made again.
    """
    model = build_model(config.model, len(corpus.vocabulary)).to(device)
    checkpoint = best_checkpoint(run)
    model.load_state_dict(checkpoint["model"])
    return model.eval(), int(checkpoint["progress"]["step"])


def measure(
    run: RunDirectory,
    config: RunConfig,
    corpus: Corpus,
    device: torch.device,
    evaluations: Sequence[EvaluateConfig],
    should_stop: Callable[[], bool],
) -> bool:
    """Fills in the run's missing records and writes the results into its summary.

    Args:
        should_stop: asked before each measurement.

    Returns:
        Whether all is measured; False if it was asked to stop before.
    """
    todo = missing(run, config, evaluations)
    if todo:
        model, step = load_best(run, config, corpus, device)
        for measurement in todo:
            if should_stop():
                return False
            _record(run, model, config, corpus, device, measurement, step)
    results = tuple(_outcome(run, with_evaluation(config, evaluate)) for evaluate in evaluations)
    run.write_summary(run.read_summary().model_copy(update={"results": results}))
    return True


def _record(
    run: RunDirectory,
    model: LanguageModel,
    config: RunConfig,
    corpus: Corpus,
    device: torch.device,
    measurement: Measurement,
    step: int,
) -> None:
    begin = time.monotonic()
    scored = score(model, corpus.ids(measurement.split), measurement, config.model.n_layer, device)
    run.write_evaluation(
        EvaluationRecord(
            measurement=measurement,
            loss=scored.loss,
            tokens=scored.tokens,
            dropped=scored.dropped,
            cold_starts=scored.cold_starts,
            by_position=tuple(scored.by_position),
            errors_by_position=tuple(scored.errors_by_position),
            checkpoint="best",
            step=step,
            dtype=scored.dtype,
            device=str(device),
            seconds=time.monotonic() - begin,
        )
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
        evaluate=config.evaluate.model_dump(mode="json"),
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

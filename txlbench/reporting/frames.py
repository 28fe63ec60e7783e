"""Records as tidy DataFrames: one observation a line, losses in nats and as displayed."""

from typing import Any

import pandas as pd

from txlbench.records.schema import SweepPoint
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.provenance import Provenance, comparison_reference, notes
from txlbench.reporting.rows import Estimate, Row, best_loss, init_loss


def curves_frame(results: Results) -> pd.DataFrame:
    """Learning curves: label, seed, step, tokens, kind (train or valid), loss (nats), value.

    Losses far above a uniform guess, where a training diverged, have no line.
    """
    columns = ["label", "seed", "step", "tokens", "kind", "loss", "value"]
    records = [
        (run.label, run.config.seed, line["step"], line.get("tokens"), kind, line[key], value)
        for run in results.runs
        if not run.is_damaged
        for line in run.directory.read_metrics()
        for kind, key in (("train", "train_loss"), ("valid", "valid_loss"))
        if key in line
        for value in [run.displayed(line[key])]
        if not run.is_exploded(line[key])
    ]
    return pd.DataFrame(records, columns=columns)


def sweep_frame(results: Results) -> pd.DataFrame:
    """Loss at each attention length: label, seed, split, attention_length, loss, value,
    extrapolated (absolute positions beyond those trained)."""
    return pd.DataFrame(
        [
            {"label": run.label, "seed": run.config.seed, **_sweep_point(run, point)}
            for run in results.runs
            if run.outcome
            for point in run.outcome.sweep
        ],
        columns=["label", "seed", "split", "attention_length", "loss", "value", "extrapolated"],
    )


def positions_frame(results: Results) -> pd.DataFrame:
    """Loss at each position of the segment, from 1: label, seed, position, loss, value.

    Positions that were not scored, or that training left out, have no line.
    """
    return pd.DataFrame(
        [
            (run.label, run.config.seed, position, loss, run.displayed(loss))
            for run in results.runs
            if run.outcome
            for position, loss in enumerate(run.outcome.by_position.by_position, start=1)
            if loss is not None and position > run.untrained_positions
        ],
        columns=["label", "seed", "position", "loss", "value"],
    )


def table_frame(rows: list[Row], provenance: Provenance) -> pd.DataFrame:
    """The result table with every number in full precision, and where it comes from."""
    reference = comparison_reference(rows)
    return pd.DataFrame(
        [
            {
                **_row(row),
                "notes": "; ".join(notes(row, reference)),
                "commit": " ".join(provenance.commits),
                "command": provenance.commands,
            }
            for row in rows
        ]
    )


def _sweep_point(run: RunResult, point: SweepPoint) -> dict[str, Any]:
    return {
        "split": point.split,
        "attention_length": point.attention_length,
        "loss": point.loss,
        "value": run.displayed(point.loss),
        "extrapolated": run.is_extrapolated(point.attention_length),
    }


def _row(row: Row) -> dict[str, Any]:
    """One line of the CSV; columns of another unit are left empty by pandas."""
    first = row.first
    return {
        "row": row.label,
        "recurrence": first.config.train.recurrence,
        "encoding": first.config.model.name,
        "loss": first.config.train.loss,
        "targets_trained": row.targets,
        "parameters": row.parameters,
        "n": len(row.counted),
        **_estimate(f"{row.unit}_init", row.init),
        **_estimate(f"{row.unit}_init_difference", row.difference(init_loss)),
        **_estimate(f"{row.unit}_best", row.best),
        **_estimate(f"{row.unit}_best_difference", row.difference(best_loss)),
        **_estimate("attention_length", row.attention_length),
        **{f"paper_{name}": value for name, value in row.line.paper.items()},
        "state": row.state,
        **_obtained(row),
        "seeds": " ".join(str(run.config.seed) for run in row.counted),
        "runs": " ".join(run.directory.id for run in row.runs),
    }


def _estimate(name: str, found: Estimate | None) -> dict[str, Any]:
    mean, half = (found.mean, found.half_width) if found else (None, None)
    resolved = {}
    if name.endswith("difference"):
        resolved = {f"{name}_resolved": found.is_resolved if found else None}
    return {name: mean, f"{name}_half_width": half, **resolved}


def _obtained(row: Row) -> dict[str, Any]:
    """How the first scored run's numbers came about; notes say where others differ."""
    run = next(iter(row.scored), None)
    if run is None or run.outcome is None:
        return {}
    init = run.outcome.init
    settings = init.measurement.model_dump(mode="json")
    names = ("split", "regime", "tgt_len", "mem_len", "stride", "batch_size", "exact")
    return {
        **{name: settings[name] for name in names},
        "tokens_scored": init.tokens,
        "tokens_dropped": init.dropped,
        "dtype": init.dtype,
    }

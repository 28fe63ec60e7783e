"""Loss against the number of keys that a query sees: how much context a model uses."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from txlbench.config.measurements import Measurement
from txlbench.records.schema import Outcome, SweepPoint
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.figures.labels import spaced
from txlbench.reporting.figures.series import LineFigure, by_label, over_seeds, seeds_of, unit_of
from txlbench.reporting.figures.style import DASHED, Dashes, Drawing, Palette, key_handle, scaled

LOGARITHMIC_FROM = 4
"""Lengths whose largest is this many times the smallest stand on a log scale."""


def draw(results: Results, palette: Palette) -> Drawing | None:
    """One line a row on the reported split; None without a sweep."""
    unit = unit_of(results)
    rows = dict(results.comparable_in(unit))
    split = results.runs[0].config.evaluate.split
    frame = sweep_frame(results)
    frame = frame[(frame["split"] == split) & frame["label"].isin(list(rows))]
    if frame.empty:
        return None
    parts = by_label(frame)
    lines = LineFigure({label: rows[label] for label in parts}, palette, unit)
    heights: list[float] = _heights(frame)
    for label, part in parts.items():
        found, colour = over_seeds(part, "attention_length"), palette.colour(label)
        lines.add(label, found, with_markers=False)
        _draw_line(lines.axes, part, found["mean"], colour, palette.dash(label))
        heights += _draw_markers(lines.axes, rows[label], colour)
    _set_lengths(lines, sorted(set(frame["attention_length"])), heights)
    subtitle = f"{split}; every query sees so many keys, itself included{seeds_of(frame)}"
    key = _key(extrapolates=bool(frame["extrapolated"].any()))
    return Drawing(lines.figure, "Loss against attention length", subtitle, key)


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


def _sweep_point(run: RunResult, point: SweepPoint) -> dict[str, object]:
    return {
        "split": point.split,
        "attention_length": point.attention_length,
        "loss": point.loss,
        "value": run.displayed(point.loss),
        "extrapolated": run.is_extrapolated(point.attention_length),
    }


def _draw_line(axes: Axes, part: pd.DataFrame, mean: pd.Series, colour: str, dash: Dashes) -> None:
    """The row's own line where positions were trained, dashed beyond."""
    beyond = set(part.loc[part["extrapolated"], "attention_length"])
    trained = mean[[length not in beyond for length in mean.index]]
    axes.plot(trained.index, trained, color=colour, linestyle=dash)
    if beyond:
        joined = mean[[length in beyond or length in trained.index[-1:] for length in mean.index]]
        axes.plot(joined.index, joined, color=colour, linestyle=DASHED)


def _heights(frame: pd.DataFrame) -> list[float]:
    """The values that the vertical axis must hold.

    Positions never trained may explode; they get as much room again as all else, and then run
    off the top.
    """
    trained = frame.loc[~frame["extrapolated"].astype(bool), "value"]
    if trained.empty:
        return list(frame["value"])
    room = 2 * trained.max() - trained.min()
    return [min(value, room) for value in frame["value"]]


def _draw_markers(axes: Axes, runs: Sequence[RunResult], colour: str) -> list[float]:
    """Marks init (open) and the shortest best (filled); returns their heights.

    Init is the mean over seeds. Each length that some seed chose has a mark, as lengths have no
    mean, over the seeds that chose it.
    """
    outcomes = [(run, run.outcome) for run in runs if run.outcome]
    init = [run.displayed(outcome.init.loss) for run, outcome in outcomes]
    keys, init_mean = mean_keys(outcomes[0][1].init.measurement), sum(init) / len(init)
    axes.plot([keys], [init_mean], marker="o", mfc="white", mew=scaled(1.6), color=colour, zorder=4)
    chosen: dict[int, list[float]] = {}
    for run, outcome in outcomes:
        if outcome.attention_length is not None:
            loss = run.displayed(_loss_there(outcome))
            chosen.setdefault(outcome.attention_length, []).append(loss)
    best = {length: sum(values) / len(values) for length, values in chosen.items()}
    style: dict[str, Any] = {"marker": "D", "mec": "white", "mew": scaled(0.8), "linestyle": "none"}
    if best:
        axes.plot(list(best), list(best.values()), color=colour, zorder=4, clip_on=False, **style)
    return [init_mean, *best.values()]


def _loss_there(outcome: Outcome) -> float:
    """Loss (nats) on the reported split at the attention length, which was chosen on valid."""
    split = outcome.best.measurement.split
    return next(
        point.loss
        for point in outcome.sweep
        if (point.split, point.attention_length) == (split, outcome.attention_length)
    )


def mean_keys(regime: Measurement) -> float:
    """Keys that a scored query sees on average: memory, and the segment up to itself.

    The scored positions are the last `stride` ones, so they see tgt_len - stride + 1 to tgt_len.
    """
    return regime.mem_len + regime.tgt_len - (regime.stride - 1) / 2


def _set_lengths(lines: LineFigure, lengths: Sequence[int], heights: Sequence[float]) -> None:
    is_logarithmic = lengths[-1] >= LOGARITHMIC_FROM * lengths[0]
    axis = lines.axes.xaxis
    if is_logarithmic:
        lines.axes.set_xscale("log", base=2)
    axis.set_minor_locator(NullLocator())
    shown = spaced(lengths, is_logarithmic)
    axis.set_major_locator(FixedLocator(shown))
    lines.axes.set_xticks(shown, [f"{length:,}" for length in shown])
    lines.finish(heights, f"attention length (keys{', log scale' * is_logarithmic})")


def _key(extrapolates: bool) -> tuple[Line2D, ...]:
    handles = [
        key_handle("init, at the mean number of keys", "none", marker="o", mfc="white"),
        key_handle("the shortest length as good as the best", "none", marker="D"),
    ]
    if extrapolates:
        handles.append(key_handle("positions not trained", DASHED))
    return tuple(handles)

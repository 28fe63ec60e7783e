"""Loss against the number of keys that a query sees: how much context a model uses."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from txlbench.config.measurements import Measurement
from txlbench.records.schema import Outcome
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.figures.labels import End, label_ends
from txlbench.reporting.figures.series import (
    draw_range,
    each_label,
    name_with_state,
    over_seeds,
    set_limits,
    unit_name,
    unit_of,
)
from txlbench.reporting.figures.style import (
    GREY,
    Palette,
    add_key,
    height_for,
    new_figure,
    width_for,
)
from txlbench.reporting.frames import sweep_frame
from txlbench.reporting.rows import estimate

TITLE = "Loss against attention length"
LOGARITHMIC_FROM = 4
"""Lengths whose largest is this many times the smallest stand on a log scale."""


def draw(results: Results, palette: Palette) -> Figure | None:
    """One line a row on the reported split; None without a sweep."""
    unit = unit_of(results)
    lines = dict(results.comparable_in(unit))
    split = results.runs[0].config.evaluate.split
    frame = sweep_frame(results)
    frame = frame[(frame["split"] == split) & frame["label"].isin(list(lines))]
    if frame.empty:
        return None
    shown = set(frame["label"])
    names = {k: name_with_state(k, runs) for k, runs in lines.items() if k in shown}
    figure, axes = new_figure(
        TITLE,
        f"{split}; every query sees so many keys, itself included",
        width_for(names.values()),
        height_for(names),
    )
    ends, values, lengths = [], [], set()
    for label, part in each_label(frame, results.labels):
        found = over_seeds(part, "attention_length")
        colour = palette.colour(label)
        draw_range(axes, found, colour)
        _draw_line(axes, part, found, colour)
        values += _draw_markers(axes, lines[label], colour)
        lengths |= set(found.index)
        ends.append(
            End(found.index[-1], found["mean"].iloc[-1], names[label], colour, palette.ink(label))
        )
    set_limits(axes, [*values, *_heights(frame)], unit)
    _set_lengths(axes, sorted(lengths))
    axes.set(xlabel="attention length (keys)", ylabel=f"loss ({unit_name(unit)})")
    add_key(axes, _legend(bool(frame["extrapolated"].any())))
    label_ends(axes, ends)
    return figure


def _draw_line(axes: Axes, part: pd.DataFrame, found: pd.DataFrame, colour: str) -> None:
    """Solid where positions were trained, dashed beyond."""
    beyond = set(part.loc[part["extrapolated"], "attention_length"])
    mean = found["mean"]
    trained = mean[[length not in beyond for length in mean.index]]
    axes.plot(trained.index, trained, color=colour)
    if beyond:
        joined = mean[[length in beyond or length in trained.index[-1:] for length in mean.index]]
        axes.plot(joined.index, joined, color=colour, linestyle=(0, (3, 2)))


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
    """Marks init (open) and the shortest best (filled), means over seeds; returns their heights."""
    outcomes = [(run, run.outcome) for run in runs if run.outcome]
    keys = mean_keys(outcomes[0][1].init.measurement)
    init = estimate([run.displayed(outcome.init.loss) for run, outcome in outcomes])
    best = estimate([run.displayed(_loss_there(outcome)) for run, outcome in outcomes])
    lengths = [outcome.attention_length for _, outcome in outcomes]
    length = estimate([each for each in lengths if each is not None])
    assert init is not None
    assert best is not None
    assert length is not None
    style: dict[str, Any] = {
        "color": colour,
        "markersize": 7,
        "linestyle": "none",
        "clip_on": False,
        "zorder": 4,
    }
    axes.plot([keys], [init.mean], marker="o", markerfacecolor="white", mew=1.6, **style)
    axes.plot([length.mean], [best.mean], marker="D", mec="white", mew=0.8, **style)
    return [init.mean, best.mean]


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


def _set_lengths(axes: Axes, lengths: Sequence[int]) -> None:
    if lengths[-1] >= LOGARITHMIC_FROM * lengths[0]:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])


def _legend(extrapolates: bool) -> list[Line2D]:
    style: dict[str, Any] = {"color": GREY, "linestyle": "none", "markersize": 6.5}
    handles = [
        Line2D([], [], marker="o", mfc="white", label="init, at the mean keys as trained", **style),
        Line2D([], [], marker="D", label="shortest length as good as the best", **style),
    ]
    if extrapolates:
        dashed = Line2D([], [], color=GREY, linestyle=(0, (3, 2)), label="positions not trained")
        handles.append(dashed)
    return handles

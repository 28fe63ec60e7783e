"""Validation loss while training, over the smoothed training loss."""

import pandas as pd
from matplotlib.ticker import FuncFormatter

from txlbench.reporting.experiment_results import Results
from txlbench.reporting.figures.series import LineFigure, by_label, over_seeds, seeds_of, unit_of
from txlbench.reporting.figures.style import COLOURS, PALE, Drawing, Palette

SMOOTHING = 0.05
"""Half-life of the training loss's moving average, as a share of the points."""
SETTLED = 0.1
"""The vertical axis shows what follows this share of the steps; all start far above it."""


def draw(results: Results, palette: Palette) -> Drawing | None:
    """One line a row: mean over seeds on valid; None before anything was validated."""
    unit = unit_of(results)
    rows = dict(results.by_label_in(unit))
    frame = curves_frame(results)
    frame = frame[frame["label"].isin(list(rows))]
    valid = by_label(frame[frame["kind"] == "valid"])
    if not valid:
        return None
    lines = LineFigure({label: rows[label] for label in valid}, palette, unit)
    last = float(frame["step"].max())
    heights: list[float] = []
    for label, part in valid.items():
        found = over_seeds(part, "step")
        lines.add(label, found)
        settled = found[found.index >= SETTLED * last]
        heights += [*settled["min"], *settled["max"]]
        if any(run.error for run in rows[label]):
            end = found["mean"].iloc[-1:]
            lines.axes.plot(end.index, end, "x", color=palette.colour(label), zorder=4)
    # A single validation gives no line: then the training losses are what is to be seen.
    is_single = all(part["step"].nunique() == 1 for part in valid.values())
    shows_train = is_single or len(valid) <= len(COLOURS)  # more would hide the lines
    train = frame[(frame["kind"] == "train") & frame["label"].isin(list(valid) * shows_train)]
    for label, part in by_label(train).items():
        mean = over_seeds(part, "step")["mean"]
        smooth = mean.ewm(halflife=max(1.0, SMOOTHING * len(mean))).mean()
        lines.axes.plot(smooth.index, smooth, color=palette.colour(label), alpha=PALE, lw=0.9)
        if is_single:
            heights += list(smooth[smooth.index >= SETTLED * last])
    lines.axes.set_xlim(0, 1.02 * last)  # the last markers whole
    lines.axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    lines.finish(heights, "training step")
    subtitle = f"loss on valid (lines{seeds_of(frame)})"
    subtitle += " and on train, smoothed (thin)" * shows_train
    return Drawing(lines.figure, "Learning curves", subtitle)


def curves_frame(results: Results) -> pd.DataFrame:
    """Learning curves: label, seed, step, tokens, kind (train or valid), loss (nats), value.

    Losses far above a uniform guess, where a training diverged, have no line.
    """
    columns = ["label", "seed", "step", "tokens", "kind", "loss", "value"]
    records = [
        (run.label, run.config.seed, line.step, line.tokens, kind, loss, value)
        for run in results.runs
        if not run.is_damaged
        for line in run.directory.read_metrics()
        for kind, loss in (("train", line.train_loss), ("valid", line.valid_loss))
        if loss is not None
        for value in [run.displayed(loss)]
        if not run.is_exploded(loss)
    ]
    return pd.DataFrame(records, columns=columns)

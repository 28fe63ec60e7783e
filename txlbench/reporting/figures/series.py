"""Seeds brought together along an axis: the mean and the range that they span."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from txlbench.reporting.experiment_results import Results, RunResult


def over_seeds(frame: pd.DataFrame, along: str) -> pd.DataFrame:
    """Mean, min and max of `value` at each point where every seed has one, in order."""
    grouped = frame.groupby(along)["value"].agg(["mean", "min", "max", "count"]).sort_index()
    return grouped[grouped["count"] == grouped["count"].max()]


def each_label(frame: pd.DataFrame, labels: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """(label, its lines) in the experiment's order, those without lines left out."""
    for label in labels:
        part = frame[frame["label"] == label]
        if len(part):
            yield label, part


def draw_range(axes: Axes, found: pd.DataFrame, colour: str) -> None:
    """Shades what the seeds span, where there are several."""
    if (found["count"] > 1).any():
        axes.fill_between(
            found.index.to_numpy(), found["min"], found["max"], color=colour, alpha=0.15, lw=0
        )


def set_limits(axes: Axes, values: Sequence[float], unit: str) -> None:
    """Fixes the vertical axis around `values`; perplexities that span much on a log scale."""
    low, high = float(np.min(values)), float(np.max(values))
    if unit == "ppl" and high > 4 * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.1, high * 1.1)
    else:
        margin = 0.06 * (high - low) or 0.05 * high
        axes.set_ylim(low - margin, high + margin)


def unit_of(results: Results) -> str:
    """The unit of the experiment's first row; rows in another are left out of a figure."""
    return results.runs[0].unit


def unit_name(unit: str) -> str:
    return "bits per character" if unit == "bpc" else "perplexity"


def name_with_state(label: str, runs: Sequence[RunResult]) -> str:
    """The label, with what a reader must know before comparing the line."""
    marks = []
    untrained = sum(not run.did_train for run in runs)
    if untrained:
        seeds = f"{untrained} of {len(runs)} seeds " if len(runs) > 1 else ""
        marks.append(f"{seeds}did not train")
    if any(run.is_incoherent for run in runs):
        marks.append("incoherent")
    states = {run.state for run in runs if run.error}
    return f"{label} ({', '.join([*marks, *sorted(states)])})" if marks or states else label

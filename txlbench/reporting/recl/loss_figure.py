"""Loss by context length: the paper's Figure 4."""

from matplotlib.figure import Figure

from txlbench.config.units import displayed
from txlbench.reporting.figures.end_labels import End, label_ends
from txlbench.reporting.figures.style import Palette, height_for, new_figure, width_for
from txlbench.reporting.recl.axis import set_contexts
from txlbench.reporting.recl.record import Group, ReclRecord

TITLE = "Loss by context length"


def draw(record: ReclRecord, group: Group, palette: Palette) -> Figure:
    """One line a model: all tokens, each given exactly so many predecessors."""
    curves = {
        model: [displayed(loss, record.unit) for loss in group.content["losses"][model]]
        for model in group.models
    }
    figure, axes = new_figure(
        f"{TITLE}{f', group {group.name}' * bool(group.name)}",
        f"{group.content['tokens']:,} tokens, each given exactly so many predecessors",
        width_for(curves),
        height_for(curves),
    )
    contexts = record.contexts
    for model, values in curves.items():
        axes.plot(
            contexts,
            values,
            color=palette.colour(model),
            marker=palette.marker(model),
            markersize=4,
        )
    values = [value for curve in curves.values() for value in curve]
    margin = 0.06 * (max(values) - min(values)) or 0.05 * max(values)
    axes.set_ylim(min(values) - margin, max(values) + margin)
    set_contexts(axes, contexts, "context length (tokens)")
    axes.set_ylabel("loss (bits per character)" if record.unit == "bpc" else "loss (perplexity)")
    ends = [
        End(contexts[-1], curve[-1], model, palette.colour(model), palette.ink(model))
        for model, curve in curves.items()
    ]
    label_ends(axes, ends)
    return figure

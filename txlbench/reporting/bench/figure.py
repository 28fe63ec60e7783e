"""Speeds as bars on a logarithmic axis, with their spread."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from txlbench.reporting.bench.record import BenchRecord
from txlbench.reporting.bench.table import name_of
from txlbench.reporting.figures.style import COLOURS, new_figure

TITLE = "Speed"


def draw(record: BenchRecord) -> Figure:
    """One bar a workload, the median written at its end."""
    results = record.results
    names = [name_of(result) for result in results]
    rates = [result["tokens_per_second"] for result in results]
    figure, axes = new_figure(
        TITLE, "tokens a second: median, lowest and highest", 7.2, 1.8 + 0.34 * len(results)
    )
    places = range(len(results))
    medians = [rate["median"] for rate in rates]
    spread = [
        [rate["median"] - rate["min"] for rate in rates],
        [rate["max"] - rate["median"] for rate in rates],
    ]
    works = list(dict.fromkeys(result["work"] for result in results))
    colours = [COLOURS[works.index(result["work"])] for result in results]
    axes.barh(places, medians, xerr=spread, color=colours, height=0.62, ecolor="#444444")
    for place, rate in zip(places, rates, strict=True):
        axes.annotate(
            f"{rate['median']:,.0f}",
            (rate["max"], place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlim(min(medians) / 3, max(medians) * 3)
    axes.set_xlabel("tokens a second (logarithmic)")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    return figure

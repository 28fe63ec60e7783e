"""What tests of figures ask of an experiment and of a drawing."""

from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.experiment_results import Results, read_results
from txlbench.reporting.figures.style import Drawing, Palette


def read(directory: ExperimentDirectory) -> tuple[Results, Palette]:
    """Results of an experiment, and the colours of its rows."""
    results = read_results(directory)
    return results, Palette(results.labels)


def texts(drawing: Drawing | None) -> str:
    """All text beside and around the axes of the first panel."""
    assert drawing is not None
    axes = drawing.figure.axes[0]
    labels = [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]
    return "\n".join([*labels, axes.get_xlabel(), axes.get_ylabel()])

"""Figures: what they show, that they are reproducible, and that they name their source."""

import zlib
from pathlib import Path

import pytest
from PIL import Image

from tests.reporting.drawings import read, texts
from tests.reporting.laboratory import COMMIT, Laboratory, append_line, quality
from txlbench.records.schema import RunState
from txlbench.reporting.figures import attention_length, learning_curves, losses
from txlbench.reporting.figures import losses as rows_figure
from txlbench.reporting.figures.style import COLOURS, style
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.report import FIGURES, draw_all, report

ALWAYS = {name: draw for name, draw in FIGURES.items() if name != "memory_lengths"}
"""Figures that need no more than two rows of any kind."""


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path / "results")


def test_files_are_reproducible_and_name_runs_commit_and_command(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    for line, config, run in laboratory.runs(directory)[:2]:
        laboratory.finish(run, config, line)
    results, _ = read(directory)
    provenance = Provenance.of(results, "txlbench ablate small.yaml")
    one = draw_all(results, provenance, directory.path / "one")
    two = draw_all(results, provenance, directory.path / "two")
    drawn = [f"{n}.{s}" for n in ALWAYS for s in ("png", "svg")]
    assert [path.name for path in one] == drawn
    assert [zlib.crc32(p.read_bytes()) for p in one] == [zlib.crc32(p.read_bytes()) for p in two]
    for path in one:
        about = Image.open(path).text["Description"] if path.suffix == ".png" else path.read_text()
        for part in (COMMIT, "txlbench ablate small.yaml", *provenance.run_ids):
            assert part in about, path
    assert "Not shown: absolute (not run)" in one[-1].read_text()
    image = Image.open(one[0])
    assert image.size[0] == 1440, "sharp enough for print"
    assert round(image.info["dpi"][0]) == 200


def test_every_axis_has_its_unit(laboratory: Laboratory) -> None:
    corpus = {"name": "mine", "path": "train.txt", "level": "word"}
    for unit, changes in (("bits per character", {}), ("perplexity", {"corpus": corpus})):
        results, palette = read(laboratory.finished(seeds=[1], **changes))
        for draw in ALWAYS.values():
            assert unit in texts(draw(results, palette))


def test_rows_keep_their_colour(laboratory: Laboratory) -> None:
    results, palette = read(laboratory.finished(seeds=[1]))
    for draw in (learning_curves.draw, attention_length.draw, losses.draw_loss_by_position):
        figure = draw(results, palette)
        assert figure is not None
        used = {line.get_color() for line in figure.figure.axes[0].lines}
        assert used == set(COLOURS[:3])


def test_what_has_no_numbers_is_named_not_drawn(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    first, second, third = laboratory.runs(directory)
    laboratory.finish(first[2], first[1], first[0])
    laboratory.fail(second[2], second[1], second[0], RunState.DIVERGED, "nan")
    laboratory.finish(third[2], third[1], third[0], loss=lambda _: 4.0)
    results, palette = read(directory)
    assert list(results.left_out("bpc")) == ["xl, no memory (diverged)", "absolute (did not train)"]
    assert "xl, no memory (diverged)" in texts(learning_curves.draw(results, palette))
    for draw in (attention_length.draw, losses.draw_loss_by_position, rows_figure.draw_loss_by_row):
        assert "absolute" not in texts(draw(results, palette))


def test_where_nothing_trained_all_is_shown_and_marked(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, loss=lambda _: 4.0)
    results, palette = read(directory)
    assert texts(rows_figure.draw_loss_by_row(results, palette)).count("(did not train)") == 3


def test_a_figure_that_no_longer_holds_is_removed(laboratory: Laboratory) -> None:
    directory = laboratory.experiment()
    results, _ = read(directory)
    directory.figures.mkdir()
    old = directory.figures / "loss_by_row.svg"
    old.write_text("old")
    assert draw_all(results, Provenance.of(results, "c"), directory.figures) == []
    assert not old.exists()


@pytest.mark.parametrize("label", ["cost $\\foo{$", "half $x$ price", "\u65e5\u672c\u8a9e"])
@pytest.mark.filterwarnings("error")
def test_a_label_is_drawn_as_it_is(laboratory: Laboratory, label: str) -> None:
    """No mathematics between dollar signs, no warning for what the font lacks."""
    directory = laboratory.finished(rows=[{"label": label}], seeds=[1])
    results, palette = read(directory)
    draw_all(results, Provenance.of(results, "txlbench"), directory.path / "figures")
    with style():
        assert label in texts(rows_figure.draw_loss_by_row(results, palette))


@pytest.mark.full
@pytest.mark.filterwarnings("error:constrained_layout")
@pytest.mark.parametrize(("is_known", "exploded"), [(True, 800.0), (False, 800.0), (False, 699.0)])
def test_one_exploded_row_takes_no_figure(
    laboratory: Laboratory, is_known: bool, exploded: float
) -> None:
    """Also where nobody noted how large the vocabulary is, so that it counts as untrained only."""
    corpus = {"name": "mine", "path": "train.txt", "level": "word"}
    directory = laboratory.experiment(corpus=corpus, seeds=[1, 2])
    for line, config, run in laboratory.runs(directory):
        loss = exploded if line.label == "xl" else quality(config)
        laboratory.finish(run, config, line, loss=lambda _, loss=loss: loss)
        if line.label == "xl":
            append_line(run.metrics_file, step=110, tokens=7040, valid_loss=exploded)
            facts = run.read_facts()
            size = facts.corpus.vocabulary_size if is_known else None
            corpus = facts.corpus.model_copy(update={"vocabulary_size": size})
            run.write_facts(facts.model_copy(update={"corpus": corpus}))
    written = report(directory, "txlbench ablate")
    assert len(written.figures) == 2 * len(ALWAYS)
    results, palette = read(directory)
    for draw in ALWAYS.values():
        drawing = draw(results, palette)
        assert drawing is not None
        assert (
            max(map(abs, (*drawing.figure.axes[0].get_xlim(), *drawing.figure.axes[0].get_ylim())))
            < 1e4
        )


def test_flat_losses_have_no_offset(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(
        seeds=[1], rows=[{"label": "a"}, {"label": "b", "set": {"train.lr": 1e-3}}]
    )
    positions = {"by_position": [500.0, 500.001] * 8}
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, **positions)
    with style():
        drawing = losses.draw_loss_by_position(*read(directory))
        assert drawing is not None
        drawing.figure.draw_without_rendering()
    assert drawing.figure.axes[0].yaxis.get_offset_text().get_text() == ""


def test_a_single_validation_stands_beside_its_training_losses(laboratory: Laboratory) -> None:
    train = {"tgt_len": 16, "batch_size": 4, "max_step": 12}
    drawing = learning_curves.draw(*read(laboratory.finished(seeds=[1], train=train)))
    assert drawing is not None
    low, high = drawing.figure.axes[0].get_ylim()
    thin = [line for line in drawing.figure.axes[0].lines if line.get_alpha()]
    shown = [y for line in thin for x, y in zip(*line.get_data(), strict=True) if x >= 2]
    assert all(low <= y <= high for y in shown)
    assert len(thin) == 3
    assert "shaded" not in drawing.subtitle
    several = learning_curves.draw(*read(laboratory.finished(name="two", train=train)))
    assert several is not None
    assert "shaded: range over seeds" in several.subtitle


def test_markers_are_whole_and_lines_that_leave_end_in_an_arrow(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(evaluate={"attention_lengths": [16, 512]}, seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line)
    drawing = attention_length.draw(*read(directory))
    assert drawing is not None
    top = drawing.figure.axes[0].get_ylim()[1]
    (exit_,) = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "^"]
    assert exit_.get_transform() == drawing.figure.axes[0].transAxes
    assert exit_.get_ydata() == [1]
    (beyond,) = [text for text in drawing.figure.axes[0].texts if "↑" in text.get_text()]
    assert float(beyond.get_text().rpartition(" ")[2]) > top
    curves = learning_curves.draw(*read(directory))
    assert curves is not None
    (axes,) = curves.figure.axes
    assert axes.get_xlim()[1] > 1.01 * max(max(line.get_xdata()) for line in axes.lines)
    assert all(line.get_clip_on() for line in axes.lines), "no early loss above the axes"

"""What is shown of probes says what the record holds."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from tests.reporting.probe_records import record, write_record
from txlbench.records.context_schema import Missing
from txlbench.reporting import probes
from txlbench.reporting.figures import probe_curves
from txlbench.reporting.figures.style import Palette, style
from txlbench.reporting.findings import present, report_finding
from txlbench.reporting.pages.page import render
from txlbench.tracking.values import title_of_finding, values_of_finding

RECORD = record()
XL, LSTM = RECORD.results


def cells(table):
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_the_main_table_says_lengths_and_shares():
    main, far, recall, cache = map(cells, probes.probe_tables(RECORD))
    assert [row["fine length"] for row in main] == ["16 [16, 16]", "0 [0, 0]"]
    assert [row["coarse length"] for row in main] == ["16", "0"]
    shown = XL.far[1].changes[0].ablated
    expected = f"{shown.value:.2f} [{shown.low:.2f}, {shown.high:.2f}]"
    assert main[0]["A(shuffle, 64)"] == expected
    assert [(row["kept as they are"], row["change"]) for row in far[:3]] == [
        ("16", "shuffle"),
        ("16", "reverse"),
        ("64", "shuffle"),
    ]
    assert len(recall) == 6
    assert cache[0]["saved by 4 sinks"] != cache[2]["saved by 4 sinks"] == "not available"


def test_what_is_missing_is_said_below():
    text = " ".join(probes.probe_tables(RECORD)[0].footer)
    assert "sinks of LSTM: not available: they are of pretrained models." in text
    assert "an upper bound" in text


def test_a_length_that_reaches_the_end_of_the_grid_is_marked():
    curve = XL.forgetting.model_copy(
        update={"coarse": 32, "fine": XL.forgetting.fine.model_copy(update={"value": 32})}
    )
    result = XL.model_copy(update={"forgetting": curve})
    row = cells(probes.probe_tables(record(results=(result, LSTM)))[0])[0]
    assert row["fine length"].startswith("≥32")
    assert row["coarse length"] == "≥32"


def test_files_that_are_written(tmp_path):
    folder = write_record(tmp_path)
    written = report_finding(folder / "probe.json", "figures")
    names = {str(path.relative_to(folder)) for path in written.paths}
    assert {"probe.html", "probe.csv", "probe.md", "probe.tex"} <= names
    assert {f"figures/probe_{name}.png" for name in ("recall", "far", "cache")} <= names
    page = (folder / "probe.html").read_text()
    assert page.count("<figure>") == 3
    assert page.index("Texts of up to 16") < page.index("<figure>")
    lines = list(csv.DictReader(io.StringIO((folder / "probe.csv").read_text())))
    values = {(line["model"], line["measure"], line["at"]): line["value"] for line in lines}
    assert float(values["XL", "fine_length", ""]) == 16
    assert float(values["LSTM", "ablated", "reverse beyond 16"]) == pytest.approx(
        LSTM.far[0].changes[1].ablated.value
    )


def test_every_text_of_the_page_is_escaped(tmp_path):
    evil = Missing(measure="<script>x", reason="<script>y")
    result = XL.model_copy(update={"model": "<script>XL", "missing": (evil,)})
    shown = present(record(results=(result,), command="<script>z"), tmp_path)
    page = render(replace(shown, figures={}).page())
    assert page.count("<script") == 1, "its own"
    assert page.count("&lt;script&gt;") > 4


def test_numbers_for_mlflow():
    found = {(each.name, each.step): each.value for each in values_of_finding(RECORD)}
    assert found["fine_length/XL", 0] == 16
    assert found["ablated/LSTM shuffle", 64] == LSTM.far[1].changes[0].ablated.value
    assert found["copy_accuracy/XL", 8] == 1
    assert title_of_finding("probe", RECORD, "x") == "probe of XL, LSTM"


def drawn(function, shown=RECORD):
    with style():
        drawing = function(shown, Palette(tuple(shown.models)))
        if drawing is not None:
            drawing.figure.canvas.draw()
    return drawing


def test_figures_draw_what_the_record_holds():
    (axes,) = drawn(probe_curves.draw_recall).figure.axes
    heights = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in axes.lines]
    for result in RECORD.results:
        for name in ("copy_accuracy", "other_accuracy"):
            assert [getattr(p, name).value for p in result.forgetting.points] in heights
    panels = drawn(probe_curves.draw_far).figure.axes
    dots = [line.get_xdata()[0] for line in panels[1].lines if line.get_marker() in ("o", "s")]
    shares = [c.ablated.value for r in RECORD.results for c in r.far[1].changes]
    assert sorted(dots) == pytest.approx(sorted(shares))
    (axes,) = drawn(probe_curves.draw_cache).figure.axes
    heights = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in axes.lines]
    assert [each.cost.value for each in XL.evictions] in heights
    assert [each.cost.value - each.saved.value for each in XL.evictions] in heights


def test_what_was_not_probed_is_not_drawn():
    bare = XL.model_copy(update={"far": (), "evictions": (), "forgetting": None, "full": None})
    shown = record(results=(bare,))
    for function in (probe_curves.draw_recall, probe_curves.draw_far, probe_curves.draw_cache):
        assert drawn(function, shown) is None
    assert probes.probe_answers(shown)[0].remarks == ()
    assert next(iter(probes.explanations(shown))).startswith("In brackets")

"""Every finding can be shown, and one that does not fit is refused with its path and key."""

import json

import pytest

from tests.reporting import (
    attention_records,
    context_records,
    probe_records,
    recl_records,
    sample_records,
    speed_records,
    test_truth,
)
from txlbench.errors import UserError
from txlbench.records.experiment_directory import FINDINGS
from txlbench.records.finding_schema import read_finding
from txlbench.reporting.figures.style import Palette
from txlbench.reporting.findings import model_palette, report_finding


@pytest.fixture
def folder(tmp_path):
    """One finding of each kind."""
    recl_records.write_record(tmp_path)
    context_records.write_record(tmp_path)
    probe_records.write_record(tmp_path)
    attention_records.write_record(tmp_path)
    sample_records.write_record(tmp_path)
    speed_records.write_record(tmp_path)
    speed_records.write_bench(tmp_path, speed_records.bench_result("train", 10.0))
    (tmp_path / "truth.json").write_text(json.dumps(test_truth.RECORD))
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("name", FINDINGS)
def test_each_has_tables_and_figures(folder, name):
    written = report_finding(folder / name, "typed")
    figures = () if name == "samples.json" else (".png", ".svg")
    assert {path.suffix for path in written.paths} == {".html", ".csv", ".md", ".tex", *figures}
    assert written.text


@pytest.mark.parametrize("name", FINDINGS)
def test_what_is_read_is_what_was_written(folder, name):
    """A file of an earlier version comes back with the same keys and values."""
    content = json.loads((folder / name).read_text())
    content["added_later"] = [1, {"a": None}]
    (folder / name).write_text(json.dumps(content))
    assert read_finding(folder / name, FINDINGS[name]).content == content


@pytest.mark.parametrize(
    ("name", "keys", "value", "found"),
    [
        ("recl.json", ["groups", 0, "results", 1, "recl"], "300", r"groups\.0\.results\.1\.recl: "),
        ("truth.json", ["rows", 0, "streaming", "loss"], None, r"rows\.0\.streaming\.loss: None "),
        ("bench.json", ["results"], [], r"results: \[\] found; list should have at least 1 item"),
        ("speed.json", ["threads"], 0, "threads: 0 found; input should be greater than 0"),
        ("speed.json", ["schema"], "x/1", "schema: 'x/1' found; txlbench.speed/1 is read"),
    ],
)
def test_what_does_not_fit_is_named(folder, name, keys, value, found):
    content = json.loads((folder / name).read_text())
    *parents, last = keys
    place = content
    for key in parents:
        place = place[key]
    place[last] = value
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{name}: {found}") as caught:
        report_finding(folder / name, "typed")
    assert "\n" not in str(caught.value)


def test_models_keep_the_colour_of_their_experiment(laboratory):
    """Found beside the finding, whatever the order there."""
    rows = [{"label": name, "set": {"train.lr": 0.001 * k}} for k, name in enumerate("abcd", 1)]
    directory = laboratory.experiment(rows=rows)
    laboratory.experiment(name="other", rows=[{"label": "d"}])
    palette = model_palette(["d", "new", "b"], directory.path.parent / "recl-1")
    usual = Palette(("a", "b", "c", "d"))
    assert [palette.colour(name) for name in "bd"] == [usual.colour(name) for name in "bd"]
    assert palette.colour("new") not in {usual.colour(name) for name in "abcd"}
    alone = model_palette(["x", "y"], directory.path.parent / "recl-1")
    assert alone == Palette(("x", "y"))

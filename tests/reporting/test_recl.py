"""The tables: Table 8's shape, marks, and what is beside it.

Everything shown of a recl.json: tables, figures, and that they name their source.
"""

import csv
import io
import json

import pytest
from PIL import Image

from tests.reporting.recl_records import COMMAND, write_record
from txlbench.errors import UserError
from txlbench.records.finding_schema import ReclRecord, ReclResult, Sensitivity, read_finding
from txlbench.reporting.findings import report_finding
from txlbench.reporting.recl import (
    above_null,
    explanations,
    length,
    recl_table,
    sensitivity_table,
    subgroup_table,
)


@pytest.fixture
def record(tmp_path):
    groups = (("XL", "LSTM", "Vanilla"),)
    folder = write_record(tmp_path, groups, {("XL", 0.1): 900, ("LSTM", 0.5): 300})
    return read_finding(folder / "recl.json", ReclRecord)


def cells(table, header):
    return next(column.cells for column in table.columns if column.header == header)


def test_models_go_down_and_shares_across(record):
    table = recl_table(record)
    assert table.header == [
        *("model", "RECL r=0.1", "RECL r=0.5", "RECL r=1"),
        *("above null r=0.1", "above null r=0.5", "above null r=1"),
        *("paper r=0.1", "paper r=0.5", "ECL"),  # no number of the paper: no column
    ]
    assert cells(table, "model") == ("XL", "LSTM", "Vanilla")
    assert cells(table, "above null r=1") == ("300 [300, 300]", "200 [200, 200]", "128* [128, 128]")
    assert cells(table, "paper r=0.1") == ("900", "", "")


def test_explanations_fit_what_is_shown(record):
    text = "\n".join(explanations(record))
    assert "the model can use no longer context" in text
    assert "100 to 400 (4 of them)" in text
    assert "XL: unit bpc, dtype fp32. LSTM: unit bpc, dtype bf16." in text


def test_settings_that_all_share_are_said_once(tmp_path):
    record = read_finding(write_record(tmp_path) / "recl.json", ReclRecord)
    text = "\n".join(explanations(record))
    assert "Losses: unit bpc. XL: dtype fp32. LSTM: dtype bf16." in text
    assert "no longer context" not in text


def test_an_ecl_at_the_first_context_is_an_upper_bound(tmp_path):
    """A first context of 16 had been shown as an ECL of 16, where longer contexts only harmed."""
    path = write_record(tmp_path) / "recl.json"
    content = json.loads(path.read_text())
    content["groups"][0]["ecl"] = {"XL": 100, "LSTM": 200}
    path.write_text(json.dumps(content))
    record = read_finding(path, ReclRecord)
    assert cells(recl_table(record), "ECL") == ("≤100", "200")
    assert "that at the best context" in "\n".join(explanations(record))


def line_of(**changes):
    given = {"recl": 300, "capped": False, "limited_by": None, "recl_above_null": 300, **changes}
    return ReclResult.model_construct(**given)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "300"),
        ({"capped": True}, "≥300"),
        ({"limited_by": "longest"}, "300*"),
        ({"limited_by": "longest", "capped": True}, "300*"),
    ],
)
def test_marks(changes, expected):
    assert length(line_of(**changes)) == expected


def test_marks_above_the_null():
    assert above_null(line_of(), last=300) == "≥300"
    assert above_null(line_of(), last=400) == "300"
    assert above_null(line_of(limited_by="longest"), last=400) == "300*"
    assert above_null(line_of(limited_by="longest", recl_above_null=100), 400) == "100"


def test_sensitivity_stands_beside_what_was_found(record):
    table = sensitivity_table(record)
    assert table.header[:4] == ["model", "r", "as given", "step 200"]
    assert len(table.rows) == 3 * 3
    assert all(" / " in cell for row in table.rows for cell in row[2:])


def test_a_setting_that_only_some_models_have(record):
    added = Sensitivity(
        setting="trained with resets", model="XL", r=0.1, recl=200, recl_above_null=100
    )
    (group,) = record.groups
    lines = (*group.sensitivity, added)
    record = record.model_copy(
        update={"groups": (group.model_copy(update={"sensitivity": lines}),)}
    )
    found = cells(sensitivity_table(record), "trained with resets")
    assert found == ("200 / 100", *[""] * 8)


def test_every_subgroup_of_three(record):
    table = subgroup_table(record)
    assert len(table.rows) == 3 + 2 * 3
    assert [row[:2] for row in table.rows][:3] == [
        ["XL", "alone"],
        ["XL", "LSTM"],
        ["XL", "Vanilla"],
    ]


PAPER = {("XL", 0.1): 900, ("XL", 1.0): 700, ("LSTM", 0.1): 400}
TWO = (("XL", "LSTM", "Vanilla"), ("LSTM",))


def test_files_and_their_names(tmp_path):
    written = report_finding(write_record(tmp_path) / "recl.json", COMMAND)
    assert [path.relative_to(tmp_path).as_posix() for path in written.paths] == [
        *("recl.html", "recl.csv", "recl.md", "recl.tex"),
        *("figures/recl_gain.png", "figures/recl_gain.svg"),
        *("figures/recl_loss.png", "figures/recl_loss.svg"),
    ]
    written = report_finding(write_record(tmp_path, TWO) / "recl.json", COMMAND)
    names = {path.name for path in written.paths}
    assert {"recl_gain-a.png", "recl_gain-b.png", "recl_loss-b.svg"} <= names


@pytest.mark.full
def test_the_same_record_gives_the_same_bytes(tmp_path):
    folder = write_record(tmp_path, TWO)
    once = {path: path.read_bytes() for path in report_finding(folder / "recl.json", COMMAND).paths}
    again = {
        path: path.read_bytes() for path in report_finding(folder / "recl.json", COMMAND).paths
    }
    assert once == again


def test_tables_and_figures_name_models_and_command(tmp_path):
    for path in report_finding(write_record(tmp_path) / "recl.json", "txlbench figures").paths:
        if path.suffix == ".png":
            text = Image.open(path).text["Description"]
        else:
            text = path.read_text()
        assert "txlbench figures" in text.replace("\\", ""), path
        assert "XL" in text


def test_csv_has_a_line_for_every_group_model_and_share(tmp_path):
    report_finding(write_record(tmp_path, TWO, PAPER) / "recl.json", COMMAND)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "recl.csv").read_text())))
    assert len(lines) == 4 * 3
    found = {(line["group"], line["model"], line["r"]): line for line in lines}
    assert found["a", "XL", "1.0"]["recl_above_null"] == "300"
    assert found["a", "XL", "1.0"]["paper"] == "700"
    assert found["b", "LSTM", "0.5"]["paper"] == ""
    assert found["a", "Vanilla", "0.1"]["recl"] == "128"
    assert found["a", "Vanilla", "0.1"]["limited_by"] == "longest"


def test_markdown_tells_what_bears_on_the_numbers(tmp_path):
    written = report_finding(write_record(tmp_path, TWO) / "recl.json", COMMAND)
    text = (tmp_path / "recl.md").read_text()
    for heading in ("Relative effective", "Other steps", "Smaller groups"):
        assert f"# {heading}" in text
    assert "Warning: r = 0.1 is 100 of 1,000 tokens" in text
    assert text.count("Warning") == 1
    assert "sampling of tokens only" in text
    assert (
        "Group b: scored on 1,000 tokens of test, all from token 2,000 to 2,999, in 50 blocks"
        in text
    )
    assert "Warning" not in written.text


def test_one_model_alone_has_no_smaller_groups(tmp_path):
    report_finding(write_record(tmp_path, (("XL",),)) / "recl.json", COMMAND)
    assert "Smaller groups" not in (tmp_path / "recl.md").read_text()


@pytest.mark.full
def test_latex_escapes_what_tex_would_interpret(tmp_path):
    report_finding(write_record(tmp_path, TWO) / "recl.json", COMMAND)
    text = (tmp_path / "recl.tex").read_text()
    assert "≥" not in text
    assert r"2.5 to 97.5 \%" in text


@pytest.mark.parametrize("content", ["[]", '{"schema": "txlbench.recl/9"}', "{"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "recl.json").write_text(content)
    with pytest.raises(UserError, match=r"recl\.json"):
        report_finding(tmp_path / "recl.json", COMMAND)

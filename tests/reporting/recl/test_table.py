"""The tables: Table 8's shape, marks, and what is beside it."""

import pytest

from tests.reporting.recl.records import COMMAND, write_record
from txlbench.reporting.recl.record import read_recl
from txlbench.reporting.recl.table import main_table, sensitivity_table, subgroup_table
from txlbench.reporting.recl.words import above_null, explanations, length


@pytest.fixture
def record(tmp_path):
    groups = (("XL", "LSTM", "Vanilla"),)
    folder = write_record(tmp_path, groups, {("XL", 0.1): 900, ("LSTM", 0.5): 300})
    return read_recl(folder / "recl.json", COMMAND)


def cells(table, header):
    return next(column.cells for column in table.columns if column.header == header)


def test_models_go_down_and_shares_across(record):
    table = main_table(record)
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
    record = read_recl(write_record(tmp_path) / "recl.json", COMMAND)
    text = "\n".join(explanations(record))
    assert "Losses: unit bpc. XL: dtype fp32. LSTM: dtype bf16." in text
    assert "no longer context" not in text


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
    line = {"recl": 300, "capped": False, "limited_by": None, **changes}
    assert length(line) == expected


def test_marks_above_the_null():
    line = {"recl": 300, "limited_by": None, "recl_above_null": 300}
    assert above_null(line, last=300) == "≥300"
    assert above_null(line, last=400) == "300"
    assert above_null({**line, "limited_by": "longest"}, last=400) == "300*"
    assert above_null({**line, "limited_by": "longest", "recl_above_null": 100}, 400) == "100"


def test_sensitivity_stands_beside_what_was_found(record):
    table = sensitivity_table(record)
    assert table.header[:4] == ["model", "r", "as given", "step 200"]
    assert len(table.rows) == 3 * 3
    assert all(" / " in cell for row in table.rows for cell in row[2:])


def test_a_setting_that_only_some_models_have(record):
    lines = record.content["groups"][0]["sensitivity"]
    added = {"setting": "trained with resets", "model": "XL", "r": 0.1}
    lines.append(added | {"recl": 200, "recl_above_null": 100})
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

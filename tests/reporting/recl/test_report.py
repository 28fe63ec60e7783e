"""Everything shown of a recl.json: tables, figures, and that they name their source."""

import csv
import io

import pytest
from PIL import Image

from tests.reporting.recl.records import COMMAND, write_record
from txlbench.errors import UserError
from txlbench.reporting.recl.report import report_recl

PAPER = {("XL", 0.1): 900, ("XL", 1.0): 700, ("LSTM", 0.1): 400}
TWO = (("XL", "LSTM", "Vanilla"), ("LSTM",))


def test_files_and_their_names(tmp_path):
    written = report_recl(write_record(tmp_path), COMMAND)
    assert [path.relative_to(tmp_path).as_posix() for path in written.paths] == [
        *("recl.csv", "recl.md", "recl.tex"),
        *("figures/recl_gain.png", "figures/recl_gain.svg"),
        *("figures/recl_loss.png", "figures/recl_loss.svg"),
    ]
    written = report_recl(write_record(tmp_path, TWO), COMMAND)
    names = {path.name for path in written.paths}
    assert {"recl_gain-a.png", "recl_gain-b.png", "recl_loss-b.svg"} <= names


def test_the_same_record_gives_the_same_bytes(tmp_path):
    folder = write_record(tmp_path, TWO)
    once = {path: path.read_bytes() for path in report_recl(folder, COMMAND).paths}
    again = {path: path.read_bytes() for path in report_recl(folder, COMMAND).paths}
    assert once == again


def test_tables_and_figures_name_models_and_command(tmp_path):
    for path in report_recl(write_record(tmp_path), "txlbench figures").paths:
        if path.suffix == ".png":
            text = Image.open(path).text["Description"]
        else:
            text = path.read_text()
        assert "txlbench figures" in text.replace("\\", ""), path
        assert "XL" in text


def test_csv_has_a_line_for_every_group_model_and_share(tmp_path):
    report_recl(write_record(tmp_path, TWO, PAPER), COMMAND)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "recl.csv").read_text())))
    assert len(lines) == 4 * 3
    found = {(line["group"], line["model"], line["r"]): line for line in lines}
    assert found["a", "XL", "1.0"]["recl_above_null"] == "300"
    assert found["a", "XL", "1.0"]["paper"] == "700"
    assert found["b", "LSTM", "0.5"]["paper"] == ""
    assert found["a", "Vanilla", "0.1"]["recl"] == "128"
    assert found["a", "Vanilla", "0.1"]["limited_by"] == "longest"


def test_markdown_tells_what_bears_on_the_numbers(tmp_path):
    written = report_recl(write_record(tmp_path, TWO), COMMAND)
    text = (tmp_path / "recl.md").read_text()
    for heading in ("Relative effective", "Other steps", "Smaller groups"):
        assert f"# {heading}" in text
    assert "Warning: r = 0.1 is 100 of 1,000 tokens" in text
    assert text.count("Warning") == 1
    assert "sampling of tokens only" in text
    assert "Group b: scored on 1,000 tokens of test, 63 blocks of 16." in text
    assert "Warning" not in written.text


def test_one_model_alone_has_no_smaller_groups(tmp_path):
    report_recl(write_record(tmp_path, (("XL",),)), COMMAND)
    assert "Smaller groups" not in (tmp_path / "recl.md").read_text()


def test_latex_escapes_what_tex_would_interpret(tmp_path):
    report_recl(write_record(tmp_path, TWO), COMMAND)
    text = (tmp_path / "recl.tex").read_text()
    assert "≥" not in text
    assert r"2.5 to 97.5 \%" in text


@pytest.mark.parametrize("content", ["[]", '{"schema": "txlbench.recl/9"}', "{"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "recl.json").write_text(content)
    with pytest.raises(UserError, match=r"recl\.json"):
        report_recl(tmp_path, COMMAND)

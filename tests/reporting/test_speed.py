"""What is shown of a speed.json: numbers, baseline, spread, the paper's column, the source."""

import csv
import io
import json

import pytest
from PIL import Image

from tests.reporting.speed_records import COMMAND, result, write_record
from txlbench.errors import UserError
from txlbench.reporting.findings import report_speed
from txlbench.reporting.speed import SpeedRecord, read_speed, speed_table


def table(folder):
    record = read_speed(folder / "speed.json", COMMAND)
    built = speed_table(record)
    return built, {row[0]: dict(zip(built.header, row, strict=True)) for row in built.rows}


def test_rows_are_ways_of_reading_and_columns_attention_lengths(tmp_path):
    _, rows = table(write_record(tmp_path))
    assert list(rows) == [
        "XL, sliding window",
        "XL, reuse, segments of 128",
        "XL, reuse, segments as long as the attention",
        "LSTM, reuse, segments of 128",
        "paper (Table 9)",
    ]
    reuse = rows["XL, reuse, segments of 128"]
    assert reuse["ms a token, 800 keys"] == "4 (3.6 to 4.8)"
    assert reuse["faster, 800 keys"] == "100 (90 to 120)"
    assert rows["XL, reuse, segments as long as the attention"]["faster, 1,800 keys"].startswith(
        "800 "
    )
    assert rows["paper (Table 9)"]["faster, 1,800 keys"] == "773"
    assert rows["paper (Table 9)"]["ms a token, 800 keys"] == ""


def test_without_published_numbers_there_is_no_row_of_them(tmp_path):
    _, rows = table(write_record(tmp_path, paper=(None, None)))
    assert "paper (Table 9)" not in rows


def test_it_names_the_baseline_the_machine_and_how_it_was_timed(tmp_path):
    built, _ = table(write_record(tmp_path))
    text = " ".join(built.footer)
    for part in ("sliding window of XL", "median of 5", "2 that are not counted", "x86_64 (cpu)"):
        assert part in text


def test_the_same_record_gives_the_same_bytes(tmp_path):
    folder = write_record(tmp_path)
    once = {path: path.read_bytes() for path in report_speed(folder, COMMAND).paths}
    again = {path: path.read_bytes() for path in report_speed(folder, COMMAND).paths}
    assert once == again
    assert [path.relative_to(folder).as_posix() for path in once] == [
        *("speed.csv", "speed.md", "speed.tex"),
        *("figures/speed.png", "figures/speed.svg"),
    ]


def test_all_files_name_models_and_command(tmp_path):
    for path in report_speed(write_record(tmp_path), "txlbench figures").paths:
        if path.suffix == ".png":
            text = Image.open(path).text["Description"]
        else:
            text = path.read_text()
        assert "txlbench figures" in text.replace("\\", ""), path
        assert "XL" in text


def test_csv_has_every_result_in_full(tmp_path):
    report_speed(write_record(tmp_path), COMMAND)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "speed.csv").read_text())))
    assert len(lines) == 8
    assert lines[1]["seconds_median"] == "0.004"
    assert lines[1]["paper"] == "363"
    assert lines[0]["paper"] == ""


def test_another_schema_is_refused(tmp_path):
    (tmp_path / "speed.json").write_text('{"schema": "txlbench.speed/2"}')
    with pytest.raises(UserError, match=r"txlbench\.speed/1 is read"):
        report_speed(tmp_path, COMMAND)


def test_segments_that_are_as_long_as_one_attention_have_their_number_there(tmp_path):
    place = write_record(tmp_path)
    content = json.loads((place / "speed.json").read_text())
    content["results"].append(result("XL", "reuse", 1800, 800, 0.002, 0.8))
    record = SpeedRecord(content, COMMAND)
    lines = record.ways["XL, reuse, segments of 800"]
    assert list(lines) == [800, 1800]
    assert lines[800] is record.ways["XL, reuse, segments as long as the attention"][800]

"""What is shown of a speed.json: numbers, baseline, spread, the paper's column, the source."""

import csv
import io
import json

import pytest
from PIL import Image

from tests.reporting.speed_records import (
    COMMAND,
    bench_result,
    result,
    write_bench,
    write_record,
)
from txlbench.errors import UserError
from txlbench.records.finding_schema import BenchRecord, SpeedRecord, read_finding
from txlbench.reporting.findings import report_finding
from txlbench.reporting.speed import bench_table, history_table, speed_table, ways_of


def table(folder):
    record = read_finding(folder / "speed.json", SpeedRecord)
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


@pytest.mark.full
def test_the_same_record_gives_the_same_bytes(tmp_path):
    folder = write_record(tmp_path)
    once = {
        path: path.read_bytes() for path in report_finding(folder / "speed.json", COMMAND).paths
    }
    again = {
        path: path.read_bytes() for path in report_finding(folder / "speed.json", COMMAND).paths
    }
    assert once == again
    assert [path.relative_to(folder).as_posix() for path in once] == [
        *("speed.html", "speed.csv", "speed.md", "speed.tex"),
        *("figures/speed.png", "figures/speed.svg"),
    ]


def test_all_files_name_models_and_command(tmp_path):
    for path in report_finding(write_record(tmp_path) / "speed.json", "txlbench figures").paths:
        if path.suffix == ".png":
            text = Image.open(path).text["Description"]
        else:
            text = path.read_text()
        assert "txlbench figures" in text.replace("\\", ""), path
        assert "XL" in text


def test_csv_has_every_result_in_full(tmp_path):
    report_finding(write_record(tmp_path) / "speed.json", COMMAND)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "speed.csv").read_text())))
    assert len(lines) == 8
    assert lines[1]["seconds_median"] == "0.004"
    assert lines[1]["paper"] == "363"
    assert lines[0]["paper"] == ""


def test_another_schema_is_refused(tmp_path):
    (tmp_path / "speed.json").write_text('{"schema": "txlbench.speed/2"}')
    with pytest.raises(UserError, match=r"txlbench\.speed/1 is read"):
        report_finding(tmp_path / "speed.json", COMMAND)


def test_segments_that_are_as_long_as_one_attention_have_their_number_there(tmp_path):
    place = write_record(tmp_path)
    content = json.loads((place / "speed.json").read_text())
    content["results"].append(result("XL", "reuse", 1800, 800, 0.002, 0.8))
    ways = ways_of(SpeedRecord.model_validate_json(json.dumps(content)))
    lines = ways["XL, reuse, segments of 800"]
    assert list(lines) == [800, 1800]
    assert lines[800] is ways["XL, reuse, segments as long as the attention"][800]


def test_a_line_a_workload_with_the_ratio_to_the_same_work(tmp_path):
    other = read_finding(
        write_bench(
            tmp_path / "b", bench_result("generate", 2.0), bench_result("train", 9.0, mem_len=1)
        ),
        BenchRecord,
    )
    path = write_bench(tmp_path / "a", bench_result("train", 3000.0), bench_result("generate", 8.0))
    ours = read_finding(path, BenchRecord).model_copy(update={"history": (other.summary,)})
    table = bench_table(ours)
    assert table.header[-1] == "times the other"
    assert table.rows[0] == [
        *("training", "small", "fp32", "800", "3,000", "1,500", "6,000", "25.0 %", "300 MiB", "")
    ]
    assert table.rows[1][-1] == "4.00"
    assert "times the other" not in bench_table(other).header
    assert "fp32 100 GFLOP/s" in "\n".join(table.footer)


def test_the_history_has_a_column_a_commit(tmp_path):
    def measured(commit, rate, *history):
        path = write_bench(tmp_path, bench_result("train", rate), bench_result("eval", 9.0))
        changes = {"commit": commit, "time": 86400.0 * rate, "history": history}
        return read_finding(path, BenchRecord).model_copy(update=changes)

    first = measured("0123456789ab+", 2000.0).summary
    second = first.model_copy(update={"commit": "b" * 40, "results": first.results[1:]})
    table = history_table(measured(None, 5000.0, first, second))
    assert table.header == ["work", "012345678+", "bbbbbbbbb", "unknown", "times the first"]
    assert table.rows == [
        ["training small fp32", "2,000", "", "5,000", "2.50"],
        ["streaming evaluation small fp32", "9", "9", "9", "1.00"],
    ]
    assert table.footer[0].startswith("012345678+: 1975-06-24 00:00 UTC, P, cpu, 2 threads")


@pytest.mark.parametrize("share", [0.5, None])
def test_everything_is_written(tmp_path, share):
    path = write_bench(
        tmp_path,
        bench_result("eval", 10.0, matmul_share=share),
        bench_result("context_losses", 1.0),
    )
    written = report_finding(path, "typed")
    assert [path.name for path in written.paths] == [
        *("bench.html", "bench.csv", "bench.md", "bench.tex", "bench.png", "bench.svg")
    ]
    assert all(path.stat().st_size > 0 for path in written.paths)
    assert "P, cpu, 2 threads, torch 2; commit abc; command: typed" in written.text

"""The table and the files of a bench.json."""

import json

import pytest

from txlbench.reporting.bench import bench_table, read_bench
from txlbench.reporting.findings import report_bench


def result(work, median, **changes):
    return {
        **{"work": work, "size": "small", "dtype": "fp32", "batch_size": 1, "tgt_len": 1},
        **{"mem_len": 800, "matmul_share": 0.25, "peak_memory_bytes": 300 * 2**20},
        "tokens_per_second": {"median": median, "min": median / 2, "max": 2 * median},
        **changes,
    }


def write(folder, *results):
    machine = {"processor": "P", "device": "cpu", "threads": 2, "torch": "2"}
    record = {
        **{"schema": "txlbench.bench/1", "machine": machine, "commit": "abc", "rounds": 7},
        **{"command": "typed", "contexts": [32, 64], "matmul_gflops": {"fp32": 99.6}},
        "results": results,
    }
    folder.mkdir(exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(record))
    return folder / "bench.json"


def test_a_line_a_workload_with_the_ratio_to_the_same_work(tmp_path):
    ours = read_bench(
        write(tmp_path / "a", result("train", 3000.0), result("generate", 8.0)), "typed"
    )
    other = read_bench(
        write(tmp_path / "b", result("generate", 2.0), result("train", 9.0, mem_len=1)), "typed"
    )
    table = bench_table(ours, other)
    assert table.header[-1] == "times the other"
    assert table.rows[0] == [
        *("training", "small", "fp32", "800", "3,000", "1,500", "6,000", "25.0 %", "300 MiB", "")
    ]
    assert table.rows[1][-1] == "4.00"
    assert "times the other" not in bench_table(ours, None).header
    assert "fp32 100 GFLOP/s" in "\n".join(table.footer)


@pytest.mark.parametrize("share", [0.5, None])
def test_everything_is_written(tmp_path, share):
    write(tmp_path, result("eval", 10.0, matmul_share=share), result("context_losses", 1.0))
    written = report_bench(tmp_path, "typed")
    assert [path.name for path in written.paths] == [
        *("bench.csv", "bench.md", "bench.tex", "bench.png", "bench.svg")
    ]
    assert all(path.stat().st_size > 0 for path in written.paths)
    assert "P, cpu, 2 threads, torch 2; commit abc; command: typed" in written.text

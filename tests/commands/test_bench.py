"""`bench` times real work in processes of their own, and says what it measured."""

import json
from dataclasses import replace

import pytest
import torch

from txlbench.commands import bench as module
from txlbench.commands.bench import BenchRequest, bench
from txlbench.commands.bench_worker import measure
from txlbench.config.benchmarks import Workload
from txlbench.errors import UserError

TINY = {
    "train": Workload("train", "small", "bf16", 2, 8, 8, 2),
    "eval": Workload("eval", "small", "bf16", 2, 8, 16, 2),
    "generate": Workload("generate", "small", "fp32", 1, 1, 16, 3),
    "context_losses": Workload("context_losses", "small", "fp32", 1, 1, 0, 2),
}


@pytest.mark.parametrize("work", TINY)
def test_every_work_is_done_and_measured(work):
    found = measure(TINY[work], torch.device("cpu"), rounds=3)
    rate = found.tokens_per_second
    assert 0 < rate.min <= rate.median <= rate.max
    assert found.matmul_gflops > 1
    assert found.peak_memory_bytes > 50 * 2**20
    share = found.matmul_share
    assert share is None if work == "context_losses" else 0 < share < 1


@pytest.mark.full
def test_what_is_left_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "workloads", lambda _: iter([TINY["generate"]]))
    seen = []
    first = BenchRequest(("small",), tmp_path / "a", device="cpu", threads=1, rounds=3)
    bench(first, seen.append)
    assert seen == [TINY["generate"]]
    record = json.loads((tmp_path / "a" / "bench.json").read_text())
    assert record["schema"] == "txlbench.bench/1"
    assert record["machine"]["threads"] == 1
    assert list(record["matmul_gflops"]) == ["fp32"]
    (result,) = record["results"]
    assert {key: result[key] for key in ("work", "size", "dtype", "mem_len")} == {
        **{"work": "generate", "size": "small", "dtype": "fp32", "mem_len": 16}
    }
    again = BenchRequest(
        ("small",), tmp_path / "b", tmp_path / "a" / "bench.json", "cpu", threads=1, rounds=3
    )
    bench(again, seen.append)
    assert "times the other" in (tmp_path / "b" / "bench.md").read_text()
    bench(replace(again, against=tmp_path / "b" / "bench.json"), seen.append)
    content = json.loads((tmp_path / "b" / "bench.json").read_text())
    earlier = [each["results"][0]["tokens_per_second"] for each in content["history"]]
    assert earlier[0] == result["tokens_per_second"] != earlier[1]
    assert content["history"][0]["time"] < content["history"][1]["time"] < content["time"]
    assert "times the first" in (tmp_path / "b" / "bench.md").read_text()


def test_bad_input(tmp_path):
    with pytest.raises(UserError, match="--sizes: 'smal' found; did you mean 'small'"):
        bench(BenchRequest(("smal",), tmp_path), print)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UserError, match=r"x\.json: schema: missing"):
        bench(BenchRequest(("small",), tmp_path, tmp_path / "x.json"), print)
    with pytest.raises(UserError, match=r"none\.json: No such file"):
        bench(BenchRequest(("small",), tmp_path, tmp_path / "none.json"), print)
    assert {path.name for path in tmp_path.iterdir()} <= {"x.json", "mine.txt"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("results", [], r"results: \[\] found; list should have at least 1 item"),
        ("results", {}, "results: "),
        ("machine", 3, "machine: "),
        ("tokens_per_second", None, r"results\.0\.tokens_per_second: "),
        ("tokens_per_second", {"median": "1", "min": 1.0, "max": 1.0}, "median: "),
    ],
)
def test_a_damaged_file_to_compare_with_is_refused_before_anything_is_timed(
    tmp_path, monkeypatch, key, value, found
):
    monkeypatch.setattr(module, "workloads", lambda _: iter([TINY["generate"]]))
    first = BenchRequest(("small",), tmp_path / "a", device="cpu", threads=1, rounds=3)
    path = bench(first, print).path
    record = json.loads(path.read_text())
    (record["results"][0] if key == "tokens_per_second" else record)[key] = value
    path.write_text(json.dumps(record))
    monkeypatch.setattr(module, "workloads", lambda _: pytest.fail("timed"))
    with pytest.raises(UserError, match=found):
        bench(BenchRequest(("small",), tmp_path / "b", path, "cpu", threads=1), print)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "workloads", lambda _: pytest.fail("timed"))
    (tmp_path / "text").write_text("")
    with pytest.raises(UserError, match=r"text: not a directory.*--out"):
        bench(BenchRequest(("small",), tmp_path / "text" / "x"), print)


def test_work_that_fails_is_named(tmp_path, monkeypatch):
    wrong = Workload("eval", "huge", "fp32", 1, 8, 8, 1)
    monkeypatch.setattr(module, "workloads", lambda _: iter([wrong]))
    with pytest.raises(UserError, match=r"eval huge fp32: .* KeyError: 'huge'"):
        bench(BenchRequest(("small",), tmp_path / "a", device="cpu", rounds=3), lambda _: None)
    assert not (tmp_path / "a").exists()

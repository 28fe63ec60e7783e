"""A speed.json as `speed` leaves it, of one model against another, and a bench.json."""

import json

from txlbench.files import write_json

COMMAND = "txlbench speed XL LSTM"


def summary(median):
    return {
        "median": median,
        "min": 0.8 * median,
        "max": 1.5 * median,
        "lower_quartile": 0.9 * median,
        "upper_quartile": 1.2 * median,
    }


def result(model, regime, length, tgt_len, seconds, slow, paper=None):
    return {
        "model": model,
        "regime": regime,
        "attention_length": length,
        "tgt_len": tgt_len,
        "seconds_per_token": summary(seconds),
        "speedup": summary(slow / seconds),
        "paper": paper,
    }


def write_record(folder, paper=(363, 773)):
    """XL and LSTM at 800 and 1,800 keys."""
    results = []
    for length, slow, published in ((800, 0.4, paper[0]), (1800, 0.8, paper[1])):
        results += [
            result("XL", "window", length, None, slow, slow),
            result("XL", "reuse", length, 128, 0.004, slow, published),
            result("XL", "reuse", length, length, 0.001, slow, published),
            result("LSTM", "reuse", length, 128, 0.0001, slow),
        ]
    source = {"reference": "results/a/XL", "name": "xl", "parameters": 41_000_000}
    content = {
        "schema": "txlbench.speed/1",
        "device": "cpu",
        "machine": "x86_64",
        "threads": 1,
        "torch": "2.13.0",
        "precision": "fp32",
        "batch_size": 1,
        "rounds": 5,
        "warm_up": 2,
        "attention_lengths": [800, 1800],
        "baseline": "XL",
        "models": {"XL": source, "LSTM": {**source, "reference": "results/a/LSTM"}},
        "commit": "0123456789ab",
        "command": COMMAND,
        "results": results,
    }
    write_json(folder / "speed.json", content)
    return folder


def bench_result(work, median, **changes):
    return {
        **{"work": work, "size": "small", "dtype": "fp32", "batch_size": 1, "tgt_len": 1},
        **{"mem_len": 800, "matmul_share": 0.25, "peak_memory_bytes": 300 * 2**20},
        "tokens_per_second": {"median": median, "min": median / 2, "max": 2 * median},
        **changes,
    }


def write_bench(folder, *results):
    machine = {"processor": "P", "device": "cpu", "threads": 2, "torch": "2"}
    record = {
        **{"schema": "txlbench.bench/1", "machine": machine, "commit": "abc", "rounds": 7},
        **{"command": "typed", "contexts": [32, 64], "matmul_gflops": {"fp32": 99.6}},
        "results": results,
    }
    folder.mkdir(exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(record))
    return folder / "bench.json"

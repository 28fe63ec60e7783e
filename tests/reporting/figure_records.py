"""Records of any number of models or rows, for figures: names of all lengths, values missing."""

import json
import tempfile
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.reporting import context_records, probe_records, recl_records
from tests.reporting.laboratory import Laboratory
from txlbench.records.context_schema import ContextRecord
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.finding_schema import (
    BenchRecord,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
)
from txlbench.records.probe_schema import ProbeRecord
from txlbench.records.schema import RunState

LONG = "a name that nobody could want to read in full beside any line of any figure, number"


def names(count: int) -> list[str]:
    """Long names and short ones, words and no spaces."""
    kinds = (f"{LONG} {{}}", "row {}", f"{'W' * 60}{{}}", "a-model-of-{}M")
    return [kinds[index % 4].format(index) for index in range(count)]


def experiment(laboratory: Laboratory, count: int) -> ExperimentDirectory:
    """Rows of every encoding with two seeds; of many some failed and some were not run."""
    kinds = [
        {"model.encoding": "xl"},
        {"model.encoding": "shaw"},
        {"model.encoding": "absolute", "train.recurrence": False, "train.loss": "half"},
    ]
    rows = [
        {"label": name, "set": {**kinds[index % 3], **_varied(index)}}
        for index, name in enumerate(names(count))
    ]
    train = {"tgt_len": 16, "batch_size": 4, "max_step": 50}
    evaluate = {"attention_lengths": [8, 12, 16, 24, 32, 48, 64, 96, 128], "tokens": 2000}
    directory = laboratory.experiment(rows=rows, seeds=[1, 2], train=train, evaluate=evaluate)
    for index, (line, config, run) in enumerate(laboratory.runs(directory)):
        if index % 11 == 8:
            laboratory.fail(run, config, line, RunState.DIVERGED, "loss became nan")
        elif index % 7 != 5:
            laboratory.finish(run, config, line)
    return directory


def _varied(index: int) -> dict[str, object]:
    """What tells a row's runs from those of others."""
    return {"train.mem_len": 16 + index, "train.lr": 1e-3 / (1 + index)}


@cache
def _recl_of_two() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return json.loads((recl_records.write_record(Path(folder)) / "recl.json").read_text())


@cache
def _context_of_two() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(json.dumps(context_records.measured(Path(folder)).content))


def recl(count: int) -> ReclRecord:
    """One group; without intervals of losses where there are many models."""
    content = multiplied(_recl_of_two(), names(count))
    if count > 6:
        content["groups"][0]["loss_errors"] = {}
    return ReclRecord.model_validate_json(json.dumps(content))


def context(count: int) -> ContextRecord:
    """One group; of many models every third lacks power law, exponent and some intervals."""
    content = multiplied(_context_of_two(), names(count))
    (group,) = content["groups"]
    bare = set(names(count)[2::3])
    group["power_laws"] = [each for each in group["power_laws"] if each["model"] not in bare]
    for each in group["mutual_information"]["exponents"]:
        each |= {"exponent": None, "factor": None} if each["model"] in bare else {}
    for curve in group["curves"]:
        for each in curve["above_best"] if curve["model"] in bare else ():
            each |= {"low": None, "high": None}
    tokens = group["view"]["tokens"]
    tokens[4::9] = [8 * token for token in tokens[4::9]]
    return ContextRecord.model_validate_json(json.dumps(content))


def multiplied(content: Any, new: list[str]) -> Any:
    """A record of two models as one of `new` ones: by turns the same, their losses apart."""
    old = list(content["models"])
    donors = [old[index % len(old)] for index in range(len(new))]

    def rename(value: Any, key: str = "") -> Any:
        """`value` with every part that is a model's once for each of the new ones."""
        if isinstance(value, str):
            return new[old.index(value) % len(new)] if value in old else value
        if isinstance(value, dict):
            if value.keys() == set(old):
                return {name: apart(value[donor], i, key) for i, name, donor in numbered}
            return {name: rename(below, name) for name, below in value.items()}
        if not isinstance(value, list):
            return value
        if value == old and key == "models":
            return new
        if key == "longest":
            return [value[old.index(donor)] for donor in donors]
        if value and isinstance(value[0], dict) and value[0].get("model") in old:
            return [
                {name: apart(below, i, name) for name, below in each.items()} | {"model": model}
                for i, model, donor in numbered
                for each in value
                if each["model"] == donor
            ]
        return [rename(each) for each in value]

    def apart(value: Any, index: int, key: str) -> Any:
        """Losses farther from the first model's the later the model is."""
        if key in ("losses", "differences", "value", "low", "high") and isinstance(value, float):
            return value + 0.02 * index
        if isinstance(value, list):
            return [apart(each, index, key) for each in value]
        if isinstance(value, dict) and key == "losses":
            return {name: apart(below, index, name) for name, below in value.items()}
        return rename(value, key)

    numbered = list(zip(range(len(new)), new, donors, strict=True))
    return rename(content)


def probe(count: int) -> ProbeRecord:
    """Every third model has no sinks, every fifth was asked for nothing but recall."""
    results = []
    for index, name in enumerate(names(count)):
        made = probe_records.result(name, index, 4 * 2 ** (index % 4), sinks=index % 3 != 1)
        bare = {"far": (), "evictions": ()} if index % 5 == 4 else {}
        results.append(made.model_copy(update=bare))
    record = probe_records.record()
    models = dict(zip(names(count), cycle(record.models.values()), strict=False))
    return record.model_copy(update={"models": models, "results": tuple(results)})


def speed(count: int) -> SpeedRecord:
    """Models read in segments and in a window, some at one length only."""
    results = []
    for index, name in enumerate(names(count)):
        for length in (800, 1800)[: 1 + (index % 4 != 3)]:
            slow = length / 2000
            results.append(_timed(name, "window", length, None, slow, slow))
            results.append(_timed(name, "reuse", length, 128, slow / (9 + 40 * index), slow))
    source = {"reference": "results/a/XL", "name": "xl", "parameters": 41_000_000}
    return SpeedRecord.model_validate_json(
        json.dumps(
            {
                **{
                    "schema": SpeedRecord.SCHEMA,
                    "device": "cpu",
                    "machine": "x86_64",
                    "threads": 1,
                },
                **{"torch": "2", "precision": "fp32", "batch_size": 1, "rounds": 5, "warm_up": 2},
                **{"attention_lengths": (800, 1800), "baseline": names(1)[0], "commit": None},
                "models": dict.fromkeys(names(count), source),
                "results": results,
            }
        )
    )


def _timed(
    model: str, regime: str, length: int, tgt_len: int | None, seconds: float, slow: float
) -> dict[str, object]:
    def spread(median: float) -> dict[str, float]:
        quartiles = {"lower_quartile": 0.9 * median, "upper_quartile": 1.2 * median}
        return {"median": median, "min": 0.8 * median, "max": 1.5 * median, **quartiles}

    return {
        **{"model": model, "regime": regime, "attention_length": length, "tgt_len": tgt_len},
        **{"seconds_per_token": spread(seconds), "speedup": spread(slow / seconds)},
        "paper": 363 if regime == "reuse" else None,
    }


def truth(count: int) -> TruthRecord:
    """Memories with and without resets, in two seeds each."""
    contexts = tuple(range(32, 289, 64))
    rows = [
        {
            **{"label": f"memory {32 * (index + 1)}", "run": f"run-{index}-{seed}", "seed": seed},
            **{"mem_len": 32 * (index + 1), "memory_reset": 0.1 * (index % 2)},
            **{"valid_loss": 1.0, "tokens": 4000},
            "streaming": {"loss": 0.77, "optimum": 0.7, "tokens": 20000},
            "losses": tuple(1.4 + 0.1 * seed - c / 400 + 0.01 * index for c in contexts),
            "known": tuple(1.3 - c / 400 for c in contexts),
            "recl": [{"r": 1.0, "recl": 64, "recl_above_null": 32, "true": 64}],
        }
        for index in range(count)
        for seed in (1, 2)
    ]
    return TruthRecord.model_validate_json(
        json.dumps(
            {
                **{
                    "schema": TruthRecord.SCHEMA,
                    "contexts": contexts,
                    "r": (1.0,),
                    "commit": "abc",
                },
                **{"threshold": 0.01, "rows": rows},
            }
        )
    )


def bench(count: int) -> BenchRecord:
    """Workloads, each at its own memory; rates four decades apart."""
    works = ("train", "eval", "generate", "context_losses")
    results = [
        {
            **{"work": works[index % 4], "size": ("small", "base")[index % 2], "dtype": "fp32"},
            **{"batch_size": 1, "tgt_len": 1, "mem_len": 100 * (index // 4)},
            **{"matmul_share": None, "peak_memory_bytes": 300 * 2**20},
            "tokens_per_second": {
                **{"median": 9.0**index % 7e4, "min": 9.0**index % 7e4 / 2},
                "max": 2 * (9.0**index % 7e4),
            },
        }
        for index in range(count)
    ]
    machine = {"processor": "P", "device": "cpu", "threads": 2, "torch": "2"}
    return BenchRecord.model_validate_json(
        json.dumps(
            {
                **{"schema": BenchRecord.SCHEMA, "machine": machine, "commit": "abc", "rounds": 7},
                **{"contexts": (32, 64), "matmul_gflops": {"fp32": 99.6}, "results": results},
            }
        )
    )

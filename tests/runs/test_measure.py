"""Every number of a table, computed again from the files that its runs left.

The files are read as plain JSON and YAML, and the rules are those of the documentation: init is the
training regime, best and attention length are chosen on valid, means are over seeds.
"""

import json
import math
import re
import statistics
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from scipy import stats

from tests.runs.trial import execute_all, plan_of, write_spec
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.report import report
from txlbench.runs.plan import Request, open_experiment

ROWS = [
    {"label": "xl", "set": {}},
    {"label": "xl, windows", "set": {"train.recurrence": False}},
    {"label": "xl, half", "set": {"train.recurrence": False, "train.loss": "half"}},
    {"label": "shaw, averaged", "set": {"model.encoding": "shaw", "train.average_from": 0.5}},
    {"label": "absolute, half", "set": {"model.encoding": "absolute", "train.loss": "half"}},
    {"label": "al-rfou", "set": {"model.encoding": "al-rfou", "train.recurrence": False}},
    {"label": "lstm", "set": {"model.kind": "lstm"}},
    {"label": "words", "set": {"corpus.name": "words", "corpus.level": "word"}},
]
TOLERANCE = 0.004


@pytest.mark.usefixtures("one_process")
def test_every_number_of_a_table_follows_from_the_records():
    """For every kind of row, trained and measured; the CSV first, then Markdown beside it."""
    steps = {"train.max_step": 40, "train.lr": 0.02, "evaluate.tolerance": TOLERANCE}
    write_spec(steps, rows=ROWS, seeds=[1, 2])
    execute_all(plan_of())
    experiment, directory, _ = open_experiment(Request(Path("spec.yaml")))
    directory.write_spec(experiment)
    report(directory, "a test")
    check_csv(directory)
    check_markdown(directory)


def check_csv(directory: ExperimentDirectory) -> None:
    table = pd.read_csv(directory.table("csv")).set_index("row")
    assert set(table.index) == {row["label"] for row in ROWS}
    reference, compared = recomputed(directory, table.loc["xl", "runs"]), 0
    for label, row in table.iterrows():
        expected = recomputed(directory, row["runs"])
        lengths = expected.pop("attention_length", {}).values()
        assert str(row["attention_lengths"]).split() == ([*map(str, lengths)] or ["nan"]), label
        for name, values in expected.items():
            mean, half = interval(list(values.values()))
            assert row[name] == pytest.approx(mean, rel=1e-9), (label, name)
            assert row[f"{name}_half_width"] == pytest.approx(half, rel=1e-9, nan_ok=True), (
                label,
                name,
            )
            if name not in reference or label == "xl":
                continue
            found = row[f"{name}_difference"], row[f"{name}_difference_half_width"]
            if row["state"] == "did not train" or len(values) == 1:
                assert all(map(math.isnan, found))
                continue
            compared += 1
            shift = interval([values[seed] - reference[name][seed] for seed in values])
            assert found[0] == pytest.approx(shift[0], rel=1e-9), (label, name)
            # Over seeds, and wider by what the choice of the text adds: `test_paired` holds that.
            assert found[1] >= shift[1] * (1 - 1e-9), (label, name)
            if row[f"{name}_difference_resolved"]:  # among all pairs: one alone needs less
                assert abs(found[0]) > found[1], (label, name)
        for seed_run in row["runs"].split():
            check_sizes(directory.runs_directory / seed_run, row)
    assert compared >= 4


def check_markdown(directory: ExperimentDirectory) -> None:
    table = pd.read_csv(directory.table("csv")).set_index("row")
    lines = directory.table("md").read_text().splitlines()
    header, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line
    )
    checked = 0
    for cells in rows[1:]:
        for name, cell in zip(header, cells, strict=True):
            numbers = re.findall(r"[-+]?[\d,]*\.\d+", cell)
            column = name.replace(" ", "_")
            if re.fullmatch("(bpc|ppl)_(init|best)", column) and numbers:
                row = table.loc[cells[0]]
                decimals = 3 if column.startswith("bpc") else 2
                exact = [row[column], row[f"{column}_half_width"]]
                assert numbers == [f"{n:,.{decimals}f}" for n in exact if not math.isnan(n)]
                checked += 1
    assert checked == 2 * len(ROWS)


def recomputed(directory, runs) -> dict[str, dict[int, float]]:
    """Column -> seed -> value of the runs named, from their evaluation files alone.

    Seeds that are no better than a unigram model count only where all are like that.
    """
    found: dict[str, dict[int, float]] = {}
    paths = [directory.runs_directory / name for name in runs.split()]
    for path in [path for path in paths if beats_unigram(path)] or paths:
        config = yaml.safe_load((path / "config.yaml").read_text())
        unit = "ppl" if config["corpus"]["level"] == "word" else "bpc"
        numbers = chosen(config, records(path))
        for name in ("init", "best"):
            nats = numbers[name]
            shown = math.exp(nats) if unit == "ppl" else nats / math.log(2)
            found.setdefault(f"{unit}_{name}", {})[config["seed"]] = shown
        if numbers["length"] is not None:
            found.setdefault("attention_length", {})[config["seed"]] = numbers["length"]
    return found


def beats_unigram(path: Path) -> bool:
    config = yaml.safe_load((path / "config.yaml").read_text())
    unigram = json.loads((path / "facts.json").read_text())["corpus"]["unigram_loss"]["test"]
    return chosen(config, records(path))["best"] < 0.98 * unigram


def records(path: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in path.glob("evaluations/*.json")]


def chosen(config: dict, records: list[dict]) -> dict:
    """Init, best and attention length in nats and keys."""
    train = config["train"]
    half = train["loss"] == "half"
    stride = train["tgt_len"] - train["tgt_len"] // 2 if half else train["tgt_len"]
    moved = train["tgt_len"] if train["recurrence"] else stride
    regime, swept = {}, {"valid": {}, "test": {}}
    for record in records:
        how = record["measurement"]
        if how["attention_length"] is not None:
            swept[how["split"]][how["attention_length"]] = record["loss"]
        elif how["stride"] == moved:
            assert (how["tgt_len"], how["mem_len"]) == (train["tgt_len"], train["mem_len"])
            regime[how["split"]] = record["loss"]
    init = regime["test"]
    if config["model"]["kind"] != "transformer":
        return {"init": init, "best": init, "length": None}
    lowest = min(swept["valid"].values())
    best = min(length for length, loss in swept["valid"].items() if loss == lowest)
    near = [length for length, loss in swept["valid"].items() if loss <= lowest + TOLERANCE]
    length = min(near, default=None)
    if "valid" in regime and regime["valid"] < lowest:
        near = [each for each in near if swept["valid"][each] <= regime["valid"] + TOLERANCE]
        return {"init": init, "best": init, "length": min(near, default=None)}
    return {"init": init, "best": swept["test"][best], "length": length}


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % t-interval, with other code than the suite's."""
    if len(values) == 1:
        return values[0], math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), float(stats.t.ppf(0.975, len(values) - 1)) * error


def check_sizes(path: Path, row) -> None:
    """Parameters and targets, from the weights and from the last line of the metrics."""
    weights = torch.load(path / "checkpoints/best.pt", weights_only=True)["model"]
    tensors = {(each.data_ptr(), each.numel()) for each in weights.values()}
    assert row["parameters"] == sum(size for _, size in tensors)
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    assert row["targets_trained"] == max(line.get("targets", 0) for line in lines)

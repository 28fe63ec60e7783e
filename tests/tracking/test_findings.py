"""Findings in a real sqlite store: a run in the experiment of their kind, with all they have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.reporting.recl_records import COMMAND, write_record
from tests.reporting.test_truth import RECORD as TRUTH
from txlbench.records.finding_schema import (
    BenchRecord,
    BenchResult,
    Rate,
    SpeedRecord,
    SpeedResult,
    Spread,
    TruthRecord,
)
from txlbench.reporting.findings import report_finding
from txlbench.tracking.backlog import nothing_to_deliver
from txlbench.tracking.deliver import deliver
from txlbench.tracking.store import store_of
from txlbench.tracking.values import values_of_finding


@pytest.fixture
def finding(tmp_path, monkeypatch):
    """A recl.json with its tables and figures, below results/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = write_record(Path("results/recl-1"))
    report_finding(folder / "recl.json", COMMAND)
    return folder / "recl.json"


def runs(finding):
    client = MlflowClient(tracking_uri=store_of(finding.parent).uri)
    experiment = client.get_experiment_by_name(finding.stem)
    return client, client.search_runs([experiment.experiment_id])


def test_one_run_with_parameters_numbers_and_files(finding):
    assert deliver(finding) is None
    client, (run,) = runs(finding)
    assert (run.info.run_name, run.info.status) == ("recl of XL, LSTM", "FINISHED")
    assert run.data.params["models"] == "XL, LSTM"
    assert run.data.params["command"] == COMMAND
    assert run.data.metrics["recl_above_null/XL r1.0"] == 300
    history = client.get_metric_history(run.info.run_id, "loss_nats/LSTM")
    assert sorted(point.step for point in history) == [100, 200, 300, 400]
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert names == {"recl.json", "recl.html", "recl.csv", "recl.md", "recl.tex", "figures"}


def test_only_what_is_new_is_delivered(finding):
    assert not nothing_to_deliver(finding)
    deliver(finding)
    assert nothing_to_deliver(finding)
    (finding.parent / "recl.md").write_text("changed")
    assert not nothing_to_deliver(finding)
    assert deliver(finding) is None
    client, (run,) = runs(finding)
    assert Path(client.download_artifacts(run.info.run_id, "recl.md")).read_text() == "changed"
    assert len(client.get_metric_history(run.info.run_id, "loss_nats/XL")) == 4


def test_a_rebuilt_store_has_it_once(finding):
    deliver(finding)
    (_, (old,)) = runs(finding)
    assert deliver(finding, rebuild=True) is None
    (_, (new,)) = runs(finding)
    assert old.info.run_id != new.info.run_id


def test_a_dead_server_is_a_reason(finding, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert "127.0.0.1" in deliver(finding)
    assert not nothing_to_deliver(finding)


@pytest.mark.full
def test_as_a_process(finding):
    command = [sys.executable, "-m", "txlbench.tracking.deliver", str(finding)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert nothing_to_deliver(finding)


def test_numbers_of_the_other_kinds():
    record = TruthRecord.model_validate_json(json.dumps(TRUTH))
    truth = {each[:1] + each[2:]: each.value for each in values_of_finding(record)}
    assert truth["loss_nats/memory 32", 64] == 0.5
    assert truth["recl_true/memory 32, resets r1.0", 0] == 64
    result = BenchResult.model_construct(
        work="train",
        size="small",
        dtype="bf16",
        mem_len=128,
        peak_memory_bytes=7,
        tokens_per_second=Rate(median=5.0, min=5.0, max=5.0),
    )
    bench = [*map(tuple, values_of_finding(BenchRecord.model_construct(results=(result,))))]
    assert bench == [
        ("tokens_per_second/train small bf16 M128", 5.0, 0),
        ("peak_memory_bytes/train small bf16 M128", 7, 0),
    ]


def test_the_step_of_a_speed_is_its_attention_length():
    line = SpeedResult.model_construct(
        model="XL",
        regime="reuse",
        tgt_len=128,
        attention_length=800,
        seconds_per_token=Spread.model_construct(median=0.5),
        speedup=Spread.model_construct(median=30.0),
    )
    found = [*map(tuple, values_of_finding(SpeedRecord.model_construct(results=(line,))))]
    assert found == [
        ("seconds_per_token/XL reuse L128", 0.5, 800),
        ("speedup/XL reuse L128", 30.0, 800),
    ]


def test_names_are_such_as_mlflow_takes(finding):
    finding.write_text(finding.read_text().replace("XL", "Shaw's: a, b"))
    assert deliver(finding) is None
    _, (run,) = runs(finding)
    assert run.data.metrics["recl_above_null/Shaw_s_ a_ b r1.0"] == 300

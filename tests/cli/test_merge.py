"""`txlbench merge`: afterwards tables, figures and MLflow tell of all machines."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.reporting.laboratory import Laboratory
from txlbench.cli.main import cli


def test_two_machines_with_a_store_each_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    rows = [{"label": "xl"}]
    Laboratory(Path("one")).finished(seeds=[1], rows=rows)
    damaged = Laboratory(Path("two")).finished(seeds=[2, 3], rows=rows).runs()[1]
    (damaged.path / "facts.json").write_text("{")
    result = CliRunner().invoke(cli, ["merge", "one", "two"], standalone_mode=False)
    assert result.return_value == 1
    assert result.stdout.splitlines()[0] == "results/small: 3 copied, 0 known, 0 replaced"
    assert result.stderr.startswith("results/small: a run left out: ")
    table = Path("results/small/table.md").read_text()
    assert "txlbench merge one two --out results" in table
    assert "2 finished, 1 damaged" in table
    assert len(list(Path("results/small/figures").glob("*.png"))) == 4
    with sqlite3.connect("results/mlflow.db") as store:
        (count,) = store.execute(
            "SELECT count(*) FROM runs WHERE lifecycle_stage = 'active'"
        ).fetchone()
    assert count == 1 + 3

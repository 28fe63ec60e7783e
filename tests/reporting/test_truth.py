"""The page of measured against known."""

import json

import pytest

from txlbench.errors import UserError
from txlbench.records.finding_schema import TruthRecord, read_finding
from txlbench.reporting.findings import report_finding
from txlbench.reporting.truth import context_table, truth_table, worst

ROW = {
    **{"label": "memory 32", "run": "xl-1", "seed": 2, "mem_len": 32, "memory_reset": 0.0},
    **{"valid_loss": 1.0, "tokens": 4000},
    "streaming": {"loss": 0.77, "optimum": 0.7, "tokens": 20000},
    "losses": [1.0, 0.5],
    "known": [0.8, 0.5],
    "recl": [{"r": 1.0, "recl": 64, "recl_above_null": 32, "true": 64}],
}
RECORD = {
    **{"schema": "txlbench.truth/1", "contexts": [32, 64], "r": [1.0], "commit": "abc"},
    **{"command": "txlbench truth", "threshold": 0.01},
    "rows": [ROW, {**ROW, "label": "memory 32, resets", "memory_reset": 0.1, "seed": 3}],
}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "truth.json").write_text(json.dumps(RECORD))
    return tmp_path


def test_measured_stands_beside_known(place):
    record = read_finding(place / "truth.json", TruthRecord)
    first = truth_table(record).rows[0]
    assert first == ["memory 32", "2", "1.111", "1.010", "+10.0 %", "+25.0 %", "32 (64)"]
    assert context_table(record).rows[0] == ["memory 32", "1.443 (+25.0 %)", "0.721 (+0.0 %)"]
    assert worst(record.rows[0]) == pytest.approx(0.25)


def test_everything_is_written_and_names_its_source(place):
    written = report_finding(place / "truth.json", "typed")
    assert [path.name for path in written.paths] == [
        *("truth.html", "truth.csv", "truth.md", "truth.tex", "truth.png", "truth.svg")
    ]
    assert all(path.stat().st_size > 0 for path in written.paths)
    page = (place / "truth.md").read_text()
    assert "Runs xl-1, xl-1; commit abc; command: txlbench truth; then typed" in page
    assert (place / "truth.csv").read_text().splitlines()[1] == "memory 32,xl-1,2,32,0.0,32,1.0,0.8"


def test_another_file_is_refused(place):
    (place / "truth.json").write_text('{"schema": "other/1"}')
    with pytest.raises(UserError, match=r"schema: 'other/1' found; txlbench\.truth/1 is read"):
        report_finding(place / "truth.json", "typed")

"""Every test of the data package has a data directory of its own."""

import pytest


@pytest.fixture(autouse=True)
def data_directory(tmp_path, monkeypatch):
    path = tmp_path / "data"
    monkeypatch.setenv("TXLBENCH_DATA", str(path))
    return path

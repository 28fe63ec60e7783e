"""Every test works in a folder of its own, with a text and a place for prepared corpora."""

import pytest

from tests.execution.trial import write_text


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    return tmp_path

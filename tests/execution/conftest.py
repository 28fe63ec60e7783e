"""Every test works in a folder of its own, with a text and a place for prepared corpora."""

import pytest

from tests.execution.in_process import NoMirror, OneProcess
from tests.execution.trial import write_text
from txlbench.execution import publishing, suite
from txlbench.reporting import report


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(publishing, "deliver_aside", lambda _: "")
    write_text(tmp_path / "mine.txt")
    return tmp_path


@pytest.fixture
def one_process(monkeypatch):
    """Whole ablations start no process, and draw no figures, which take a second each time."""
    monkeypatch.setattr(suite, "ProcessPool", OneProcess)
    monkeypatch.setattr(suite, "Mirror", NoMirror)
    monkeypatch.setattr(report, "draw_all", lambda *_: ())

"""Every test works in a folder of its own, with a text and a place for prepared corpora."""

import pytest

from tests.runs.in_process import NoMirror, OneProcess
from tests.runs.trial import write_text
from txlbench.commands import publish
from txlbench.reporting import report
from txlbench.runs import ablation
from txlbench.runs.executors import choose


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(publish, "deliver_aside", lambda *_: "")
    write_text(tmp_path / "mine.txt")
    return tmp_path


@pytest.fixture
def one_process(monkeypatch):
    """Whole ablations start no process, and draw no figures, which take a second each time."""
    monkeypatch.setattr(choose, "ProcessPool", OneProcess)
    monkeypatch.setattr(ablation, "MirrorProcess", NoMirror)
    monkeypatch.setattr(report, "draw_all", lambda *_: ())

"""Progress is drawn over on a terminal and said once elsewhere."""

import io
from types import SimpleNamespace

import pytest

from txlbench.data import progress_line
from txlbench.data.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=terminal))
    return terminal


def filled(sizes, total):
    line = ProgressLine("fetching x")
    line.total = total
    for size in sizes:
        line.update(size)
    line.reset()
    line.update(total)
    line.close()


def test_a_terminal_shows_how_much_of_how_much(terminal):
    filled([1_000_000] * 3, 3_000_000)
    assert terminal.getvalue().startswith("\rfetching x: 1.0 of 3.0 MB")
    assert terminal.getvalue().endswith("\rfetching x: 3.0 of 3.0 MB\n")


def test_an_unknown_total_is_left_out(terminal):
    line = ProgressLine("fetching x")
    line.update(2_500_000)
    assert terminal.getvalue() == "\rfetching x: 2.5 MB"


def test_an_interrupted_line_is_ended(terminal):
    line = ProgressLine("fetching x")
    line.update(1)
    line.close()
    line.close()
    assert terminal.getvalue().count("\n") == 1


def test_elsewhere_one_line_says_what_goes_on(capsys):
    filled([1_000_000] * 3, 3_000_000)
    assert capsys.readouterr().err == "fetching x\n"


def test_nothing_is_shown_before_the_first_bytes(terminal):
    ProgressLine("fetching x").close()
    assert terminal.getvalue() == ""

"""`status --watch` on real runs: what a terminal shows while they train, and when it ends."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.records.as_record import append_line
from tests.runs.trial import execute_all, prepared_job, write_spec, write_text
from txlbench.cli import watch as watching
from txlbench.cli.watch import ASCII_BLOCKS, sparkline, watch
from txlbench.errors import ExitStatus, UserError
from txlbench.records.claim import claimed
from txlbench.records.schema import Failure, RunState
from txlbench.runs.plan import Request, open_experiment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Four runs of an experiment, none of them begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec(seeds=[1, 2, 3, 4])
    experiment, directory, runs = open_experiment(Request(Path("spec.yaml")))
    directory.path.mkdir(parents=True)
    directory.write_spec(experiment)
    return directory, runs


def train(run, steps):
    """Leaves what a run has left after so many of its steps."""
    prepared_job(run)
    run.directory.start()
    for step in range(1, steps + 1):
        loss = 3.0 - 0.2 * step
        append_line(run.directory.metrics_file, step=step, train_loss=loss)
    append_line(run.directory.timings_file, step=steps, tokens_per_second=64.0)


def seen(directory, width=110, height=30, encoding="utf-8"):
    """(exit status, the lines shown last)."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    console = Console(file=file, force_terminal=True, width=width, height=height, no_color=True)
    code = watch([directory], console)
    file.flush()
    page = raw.getvalue().decode(encoding).rpartition("results/trial: ")[2]
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", page).splitlines()
    return code, [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def once(monkeypatch):
    """Ctrl-C after the first look."""

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=interrupt))


def test_a_line_shows_share_curve_loss_speed_and_time_left(plan, once):
    directory, (done, failed, running, _) = plan
    execute_all([done])
    train(failed, 3)
    failure = Failure(type="ValueError", message="too bad", where="x:1")
    failed.directory.set_state(RunState.FAILED, failure)
    train(running, 6)
    with claimed(running.directory.path):
        code, (counts, *lines) = seen(directory)
    assert code == ExitStatus.DONE
    assert counts == "1 not started, 1 running, 1 finished, 1 failed"
    first, second, third, fourth = lines
    config = running.config.train
    left = 6 * config.batch_size * config.tgt_len / 64
    assert first.startswith("  trial (seed 1)")
    assert "finished" in first
    assert "failed" in second
    assert third.split()[3:] == [
        *("50%", "trained", "\u2588\u2586\u2585\u2583\u2581", "train", "2.597", "bpc"),
        *("64", "tok/s", watching.duration(left), "left"),
    ]
    assert fourth.split()[3:] == ["not", "started"]


def test_a_narrow_terminal_cuts_titles_and_a_low_one_shows_who_works(plan, once):
    directory, runs = plan
    train(runs[3], 6)
    with claimed(runs[3].directory.path):
        _, lines = seen(directory, width=66, height=6, encoding="ascii")
    assert lines[1].startswith("  trial (se")
    assert "@#+=-_" not in lines[1]
    assert set(ASCII_BLOCKS) & set(lines[1])
    assert len(lines[1]) <= 66
    assert "tok/s" not in lines[1]
    assert lines[1].endswith(" left")
    assert lines[-1] == "  and 1 more"


def test_it_ends_when_all_have_ended_and_tells_of_damage(plan):
    directory, runs = plan
    execute_all(runs[:3])
    train(runs[3], 2)
    (runs[3].directory.path / "config.yaml").write_text("{")
    code, (counts, *_) = seen(directory)
    assert counts == "3 finished, 1 damaged"
    assert code == ExitStatus.RUN_FAILED


def test_what_is_no_terminal_is_refused(plan):
    with pytest.raises(UserError, match="not a terminal"):
        watch([plan[0]], Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([2.0], "\u2581"),
        ([1.0, 1.0], "\u2581\u2581"),
        ([8, 7, 6, 5, 4, 3, 2, 1], "\u2588\u2587\u2586\u2585\u2584\u2583\u2582\u2581"),
        ([0.0] * 50 + [1.0] * 50, "\u2581" * 4 + "\u2588" * 4),
    ],
)
def test_sparkline(values, expected):
    assert sparkline(values, 8) == expected


@pytest.mark.full
def test_a_real_terminal_sees_a_run_end(plan):
    directory, runs = plan
    execute_all(runs[:3])
    train(runs[3], 6)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "txlbench", "status", str(directory.path), "--watch"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110", "TERM": "xterm"}
    with claimed(runs[3].directory.path):
        process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
        shown, deadline = b"", time.monotonic() + 60
        while b"50% trained" not in shown and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 1 << 16)
        assert b"50% trained" in shown
        assert process.poll() is None
        runs[3].directory.set_state(RunState.DIVERGED)
    assert process.wait(60) == ExitStatus.DONE

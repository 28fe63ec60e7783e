"""One process a run: claimed while it lives, free when it is gone."""

import subprocess
import sys
import threading

from txlbench.records.claim import claimed, is_claimed
from txlbench.records.run_directory import RunDirectory


def test_a_claimed_run_is_refused_until_it_is_free(tmp_path):
    run = RunDirectory(tmp_path)
    with claimed(run) as mine, claimed(run, patience=0.05) as theirs:
        assert (mine, theirs) == (True, False)
    with claimed(run) as again:
        assert again


def test_a_dead_process_holds_nothing(tmp_path):
    code = (
        "import os, pathlib\n"
        "from txlbench.records.claim import claimed\n"
        "from txlbench.records.run_directory import RunDirectory\n"
        f"with claimed(RunDirectory(pathlib.Path({str(tmp_path)!r}))) as mine:\n"
        "    print(mine, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True\n", -9)
    with claimed(RunDirectory(tmp_path)) as mine:
        assert mine


def test_looking_takes_nothing(tmp_path):
    run = RunDirectory(tmp_path)
    assert not is_claimed(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with claimed(run):
        assert is_claimed(tmp_path)
    assert not is_claimed(tmp_path)


def test_whoever_looks_all_the_time_keeps_nobody_out(tmp_path):
    """A worker that met a look would leave its run undone."""
    run, over = RunDirectory(tmp_path), threading.Event()

    def look():
        while not over.is_set():
            is_claimed(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(50):
            with claimed(run) as mine:
                assert mine
    finally:
        over.set()
        for looker in lookers:
            looker.join()

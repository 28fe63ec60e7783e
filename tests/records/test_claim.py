"""One process a run: claimed while it lives, free when it is gone."""

import subprocess
import sys

from txlbench.records.claim import claimed
from txlbench.records.run_directory import RunDirectory


def test_a_claimed_run_is_refused_until_it_is_free(tmp_path):
    run = RunDirectory(tmp_path)
    with claimed(run) as mine, claimed(run) as theirs:
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

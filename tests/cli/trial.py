"""The command line as a process: in the folder it is called in, with the checkout's package."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more):
    path = os.pathsep.join([*more.pop("before", ()), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, **more}


def on_one_core():
    """Tests share the machine; a run then has one thread, where the system lets us choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def start(*arguments, env=None):
    """Starts `txlbench` with `arguments`."""
    return subprocess.Popen(
        [sys.executable, "-m", "txlbench.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or environment(),
        preexec_fn=on_one_core,
    )


def call(*arguments, env=None, timeout=120):
    """Runs `txlbench` to its end: (exit status, standard output, standard error)."""
    process = start(*arguments, env=env)
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, output, errors

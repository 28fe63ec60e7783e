"""Seconds of overhead a run and memory of the driver, for each launcher.

python -m tests.benchmarks.launchers [--runs N] [--jobs N] [--launchers process,ray,slurm]

Trains N very short runs with one call of `txlbench ablate` for each launcher: worker processes, a
local Ray, and submitit's local queue in Slurm's place. What runs do between their own start and
end is the same everywhere. Overhead is what their slots spend otherwise, between the first start
and the last end: starting processes, importing torch, handing over, noticing the end. What a call
takes before and after (starting Ray, the table, MLflow) stands apart.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.runs.trial import write_spec, write_text

WORDS = {
    "process": [],
    "ray": ["--launcher", "ray", "--address", "local"],
    "slurm": ["--launcher", "slurm", "--resource", "cluster=local"],
}
ROOT = Path(__file__).parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--launchers", default=",".join(WORDS))
    options = parser.parse_args()
    for name in options.launchers.split(","):
        print(line(name, options.runs, options.jobs), flush=True)


def line(launcher, runs, jobs):
    """What `runs` runs cost with `launcher`, in one line."""
    with tempfile.TemporaryDirectory(prefix="launchers-") as folder:
        os.chdir(folder)
        write_text(Path("mine.txt"))
        write_spec(seeds=list(range(1, runs + 1)))
        begin = time.time()
        status, peak = call(["ablate", "spec.yaml", "--jobs", str(jobs), *WORDS[launcher]])
        end = time.time()
        spans = list(map(span, sorted(Path("results/trial/runs").glob("*/status.json"))))
        os.chdir(ROOT)
    assert status == 0, f"{launcher}: exit status {status}"
    assert len(spans) == runs
    first, last = min(start for start, _ in spans), max(stop for _, stop in spans)
    work = sum(stop - start for start, stop in spans)
    return (
        f"{launcher:8} {runs} runs, {jobs} at once: {((last - first) * jobs - work) / runs:.2f} s "
        f"of overhead a run beside {work / runs:.2f} s of work; {first - begin:.1f} s before the "
        f"first, {end - last:.1f} s after the last; driver {peak / 2**20:.0f} MiB"
    )


def call(words):
    """The exit status of the command line, and the peak memory of its process in bytes."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TXLBENCH_DATA": str(Path("data").absolute()),
    }
    command = [sys.executable, "-m", "txlbench", *words]
    peak = 0
    with Path("said.txt").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.2)
    if process.returncode:
        print(Path("said.txt").read_text(), file=sys.stderr)
    return process.returncode, peak


def resident(pid):
    """The most memory that a process has had so far, in bytes; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def span(status):
    """When a run began and ended, in seconds since the epoch."""
    content = json.loads(status.read_text())
    return content["started"], content["updated"]


if __name__ == "__main__":
    main()

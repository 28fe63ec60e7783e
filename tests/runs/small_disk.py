"""A run on a disk that gets full or read-only in the middle; `test_small_disk` calls it.

Called as `python -m tests.runs.small_disk KIND SCENARIO` in a folder with spec.yaml, with
the disk at ./small; writes what happened to ./told.json.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

from tests.runs.test_resuming import equal
from tests.runs.trial import finished, lines, prepared
from txlbench import files
from txlbench.records.run_directory import RunDirectory
from txlbench.runs.failure import record_failure
from txlbench.runs.train_run import execute
from txlbench.training.checkpoint import load

SMALL = Path("small")
FILLER = SMALL / "filler"


class Disk:
    """Refuses and allows writing, for real: by no room, by a new mount, or by a limit."""

    def __init__(self, kind, way):
        self.way = way if kind == "tmpfs" else "limit"

    def refuse(self):
        if self.way == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        elif self.way == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(SMALL)], check=True)
        else:
            fill(0)

    def allow(self):
        if self.way == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        elif self.way == "read-only":
            subprocess.run(["mount", "-o", "remount,rw", str(SMALL)], check=True)
        else:
            FILLER.unlink()


def fill(left):
    """Takes all but `left` bytes of the small disk."""
    with FILLER.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(max(0, file.tell() - left))


def at_steps(actions):
    """A `should_stop` that acts after the steps given."""
    steps = iter(range(1, 10**6))

    def should_stop():
        actions.get(next(steps), lambda: None)()
        return False

    return should_stop


def for_a_while(disk, job):
    """Refused from step 4 to step 9: a checkpoint and two log lines are late."""
    found = {"notes": []}
    execute(job, at_steps({4: disk.refuse, 9: disk.allow}))
    found["notes"] = RunDirectory(job.directory).read_status().notes
    return found


def for_good(disk, job):
    """Refused from step 6 to the end; then the run is called again."""
    run = RunDirectory(job.directory)
    try:
        execute(job, at_steps({6: disk.refuse}))
    except OSError as error:
        found = {"error": str(error), "state": record_failure(run, error)}
    found["steps"] = [line["step"] for line in lines(run)]
    found["files"] = sorted(path.name for path in run.checkpoints.iterdir())
    found["saved"] = load(run.checkpoints / "last.pt")["progress"]["step"]
    disk.allow()
    execute(job, lambda: False)
    return found


SCENARIOS = {"for a while": for_a_while, "for good": for_good}


def main(kind, way, scenario):
    torch.set_num_threads(1)
    files.WAITS = (0.01, 0.02)
    straight = finished("straight/trial")
    run, job = prepared(str(SMALL / "trial"))
    told = SCENARIOS[scenario](Disk(kind, way), job)
    told["kind"], told["end"] = kind, run.state
    told["same lines"] = run.metrics_file.read_bytes() == straight.metrics_file.read_bytes()
    for name in ("last.pt", "best.pt"):
        one, two = (load(each.checkpoints / name) for each in (run, straight))
        told[f"same {name}"] = equal(one["model"], two["model"])
    told["timings"] = [timing.step for timing in run.read_timings()]
    Path("told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

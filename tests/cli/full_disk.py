"""An ablation whose disk gets full in the middle; `test_full_disk` calls it.

Called as `python -m tests.cli.full_disk KIND` in a folder with spec.yaml, with the disk at
./small; writes what the two calls of `txlbench ablate` gave to ./told.json.
"""

import json
import resource
import sys
import time
from pathlib import Path

from tests.cli.trial import call, start
from tests.runs.small_disk import FILLER, fill
from tests.runs.trial import plan_of

ROOM = 64 * 1024
"""Left on the full disk: enough for log lines and states, not for checkpoints and figures."""
ARGUMENTS = ("ablate", "spec.yaml", "--out", "small/trial", "--device", "cpu")


def refuse(kind, run):
    """Fills the disk; without one of our own, no file of the run's process may grow any more."""
    if kind == "tmpfs":
        fill(ROOM)
    else:
        worker = run.read_status().pid
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def main(kind):
    (run,) = (planned.directory for planned in plan_of(out=Path("small/trial")))
    process = start(*ARGUMENTS)
    while not run.metrics_file.exists() or run.metrics_file.read_bytes().count(b"\n") < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    refuse(kind, run)
    output, errors = process.communicate(timeout=200)
    told = {"kind": kind, "first": [process.returncode, output, errors], "state": run.current_state}
    told["remains"] = [path.name for path in run.checkpoints.glob(".*")]
    FILLER.unlink(missing_ok=True)
    told["second"] = call(*ARGUMENTS, timeout=200)
    told["end"] = run.state
    Path("told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

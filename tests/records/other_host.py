"""A process that claims a run as another machine would: no lock of ours reaches it.

`python -m tests.records.other_host RUN HOST SILENCE MODE`. Mode `hold` takes the run, waiting for
it, says `mine`, and answers each line of its input: `write` appends the host's name to `log`
beside the run's files (`written`, or `lost` if another host took over), `end` ends. Mode `contend`
takes the run whenever it can for as many seconds as its input says, and prints how often it had it
and how often it was not alone.
"""

import os
import sys
import time
from pathlib import Path

from txlbench.records import claim
from txlbench.records.claim import ClaimLost, check_claim, claimed


def become(host, silence):
    """Makes this process see nobody's locks, and its own machine as `host`."""
    claim._machine = lambda: host
    claim._lock = lambda file, kind: True
    claim.SILENCE_SECONDS = silence
    claim.HEARTBEAT_SECONDS = silence / 10


def hold(run, host):
    while True:
        with claimed(run, patience=0) as mine:
            if mine is None:
                time.sleep(0.02)
                continue
            with mine.kept():
                print("mine", flush=True)
                for line in sys.stdin:
                    if line == "end\n":
                        return
                    print(written(run, host), flush=True)
            return


def written(run, host):
    try:
        check_claim(run)
    except ClaimLost:
        return "lost"
    with (run / "log").open("a") as file:
        file.write(f"{host}\n")
    return "written"


def contend(run):
    seconds = float(sys.stdin.readline())
    deadline, had, shared = time.monotonic() + seconds, 0, 0
    while time.monotonic() < deadline:
        with claimed(run, patience=0) as mine:
            if mine is None:
                continue
            had += 1
            try:
                os.close(os.open(run / "inside", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                shared += 1
                continue
            time.sleep(0.001)
            (run / "inside").unlink()
    print(had, shared, flush=True)


if __name__ == "__main__":
    run, host, silence, mode = sys.argv[1:]
    become(host, float(silence))
    hold(Path(run), host) if mode == "hold" else contend(Path(run))

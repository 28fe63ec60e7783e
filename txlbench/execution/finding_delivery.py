"""Delivers a finding to MLflow in a process of its own: loading MLflow takes seconds."""

import subprocess
import sys
from pathlib import Path

from txlbench.tracking.finding_backlog import finding_left
from txlbench.tracking.store import store_of

PATIENCE_SECONDS = 60.0


def deliver_aside(path: Path) -> str:
    """Has the finding at `path` delivered; returns what stood in the way, if anything.

    A store beside the results is left to the process, which needs some seconds more and nobody's
    patience; `sync` tells if it failed. A server is waited for.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "txlbench.tracking.finding_mirror", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # what is handed over is delivered, whoever interrupts us then
    )
    if store_of(path.parent).is_own:
        return ""
    try:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return finding_left(path, f"nothing came in {PATIENCE_SECONDS:.0f} s")
    if process.returncode and not said.strip():
        return finding_left(path, f"the delivery ended with status {process.returncode}")
    return said.strip()

"""The delivery of a finding to MLflow as a process, which loads MLflow while others compute."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from txlbench.tracking.finding_backlog import finding_left

PATIENCE_SECONDS = 60.0


class FindingDelivery:
    """Starts the process on entry; nothing is delivered unless `finish` is called.

    Attributes:
        path: the finding's JSON file, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "txlbench.tracking.finding_mirror", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def finish(self) -> str:
        """Delivers what is there now; returns what stood in the way, if anything."""
        try:
            said, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return finding_left(self.path, f"nothing came in {PATIENCE_SECONDS:.0f} s")
        if self._process.returncode and not said.strip():
            status = self._process.returncode
            return finding_left(self.path, f"the delivery ended with status {status}")
        return said.strip()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

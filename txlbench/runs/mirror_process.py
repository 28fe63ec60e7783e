"""Starts the MLflow mirror as a process beside the runs, which never import mlflow themselves."""

import contextlib
import subprocess
import sys
from types import TracebackType
from typing import Self

from txlbench.config.plugins import loaded_plugins
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.tracking.backlog import what_is_left

PATIENCE_SECONDS = 600.0
"""For the last delivery; a server may take bytes and never be done with them."""


class MirrorProcess:
    """Starts the mirror process and waits for its last delivery.

    Its standard input is its lifeline: closing it asks for a final delivery, and so does the
    parent's death.
    """

    def __init__(self, directory: ExperimentDirectory) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def follow(self) -> None:
        """Begins to deliver while runs go on; the second call changes nothing."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "txlbench.tracking.deliver",
                str(self._directory.path),
                "--follow",
                *(f"--plugin={each.path}" for each in loaded_plugins()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> str:
        """Waits for what is left to be delivered; returns the mirror's complaint, if any."""
        if self._process is None:
            return ""
        process, self._process = self._process, None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdin = None
        try:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return what_is_left(
                self._directory.path, f"nothing more came in {PATIENCE_SECONDS:.0f} s"
            )
        if not process.returncode:  # libraries may have said something too
            return "\n".join(line for line in said.splitlines() if line.startswith("MLflow: "))
        return said.strip() or what_is_left(
            self._directory.path, f"the mirror ended with status {process.returncode}"
        )

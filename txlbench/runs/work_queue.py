"""The queue of an experiment's runs, shared with other calls that work on the same output.

Each call takes the next run that nobody has claimed. What others hold is waited for in the end,
and done here if they die: a dead process holds no claim.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence

from txlbench.config.plugins import loaded_plugins
from txlbench.records.claim import claimed, holder, is_claimed
from txlbench.records.schema import RunState
from txlbench.runs.job import Job
from txlbench.runs.plan import Need, PlannedRun

POLL_SECONDS = 0.5


class WorkQueue:
    """The runs of `todo` as far as they fall to this call.

    Args:
        todo: what was missing when the call began, in order.
        say: told, once, that others are waited for.
    """

    def __init__(self, todo: Sequence[PlannedRun], say: Callable[[str], None]) -> None:
        self._todo = todo
        self._say = say
        self._retried = {run.id: run.directory.attempts for run in todo if run.need() is Need.RETRY}
        self._over: set[str] = set()
        self._has_said = False

    def jobs(self) -> Iterator[Job]:
        """What nobody is at, each looked at when it is asked for."""
        for run in self._todo:
            if self._is_free(run) and (job := self._prepared(run)) is not None:
                yield job

    def end(self, run: PlannedRun) -> None:
        """Notes that this call brought `run` to an end, good or bad, and is done with it."""
        self._over.add(run.id)

    def wait(self, tick: Callable[[], None]) -> bool:
        """Waits until some run is free again, True, or nothing is left to wait for, False."""
        while not any(self._is_free(run) for run in self._todo):
            held = [run for run in self._todo if self._is_held(run)]
            if not held:
                return False
            self._say_once(held)
            tick()
            time.sleep(POLL_SECONDS)
        return True

    def _is_free(self, run: PlannedRun) -> bool:
        """Whether `run` lacks something, and nobody is at it."""
        if run.id in self._over or self._is_held(run):
            return False
        need = run.need()
        if need is Need.RETRY:  # once: what another call tried again meanwhile was tried again
            return self._retried.get(run.id) == run.directory.attempts
        return need in (Need.TRAINING, Need.EVALUATION)

    def _is_held(self, run: PlannedRun) -> bool:
        return run.id not in self._over and is_claimed(run.directory.path)

    def _prepared(self, run: PlannedRun) -> Job | None:
        """The job of `run`, whose directory is ready for it; None if another call was faster."""
        directory = run.directory
        directory.path.mkdir(parents=True, exist_ok=True)
        with claimed(directory.path, patience=0.0) as claim:
            if claim is None:
                return None
            directory.write_config(run.config, run.paper, run.labels[0])
            if run.need() is Need.RETRY:
                directory.set_state(RunState.INTERRUPTED)
            return Job(
                directory.path,
                "cpu",
                run.evaluations,
                directory.attempts,
                run.config.train.devices,
                loaded_plugins(),
            )

    def _say_once(self, held: Sequence[PlannedRun]) -> None:
        if not self._has_said:
            self._has_said = True
            self._say(
                f"waiting for runs that other processes are at: {', '.join(map(_place, held))}"
            )


def _place(run: PlannedRun) -> str:
    """The run's title, and the machine where it is at work if that is another one."""
    host = holder(run.directory.path).host
    return run.title + (f" (on {host})" if host not in ("", socket.gethostname()) else "")

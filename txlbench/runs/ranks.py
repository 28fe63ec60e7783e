"""The processes of one run on several devices: started by torchrun's launcher, each on its rows.

The worker process holds the run's claim and starts the ranks, as `python -m txlbench.runs.ranks`.
Their standard input is a pipe from it, their lifeline: a byte asks for a checkpoint, its end to
stop with one. It goes to whichever reads first, since what one rank is asked for all agree on.
"""

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator

from txlbench.errors import ExitStatus, UserError
from txlbench.records.claim import ClaimLost, claimed_by_parent
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.failure import record_failure, remedy
from txlbench.runs.job import SAVING, Job

POLL_SECONDS = 0.1
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def execute_on_ranks(job: Job, stop: threading.Event, save: threading.Event) -> RunState:
    """Executes the job in `job.processes` ranks; returns the state in which they leave the run.

    If one dies the others end with it, and the run is interrupted, unless it was recorded as
    failed.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    run = RunDirectory(job.directory)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="txlbench-ranks-") as logs, _lifeline(stop, save):
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=job.processes,
            run_id=job.directory.name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            signals_to_handle="SIGQUIT",  # what else comes is passed on by the lifeline
        )
        arguments = ("-m", "txlbench.runs.ranks", job.to_json().replace("$", "$$"))
        try:
            elastic_launch(config, sys.executable)(*arguments)
        except ChildFailedError as error:
            if not run.state.is_bad:
                run.set_state(RunState.INTERRUPTED)
                ends = {rank: failure.exitcode for rank, failure in error.failures.items()}
                run.note(_how_it_ended(run, ends))
    return run.state


@contextlib.contextmanager
def _lifeline(stop: threading.Event, save: threading.Event) -> Iterator[None]:
    """Inside, standard input is a pipe on which processes that are started hear of the events."""
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    over = threading.Event()

    def pass_on() -> None:
        while not stop.is_set() and not over.wait(POLL_SECONDS):
            if save.is_set():
                save.clear()
                os.write(writing, b"\n")
        os.close(writing)

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.dup2(before, 0)
        os.close(before)


def _how_it_ended(run: RunDirectory, ends: dict[int, int]) -> str:
    """Which rank was lost, from the exit status of those that did not end well.

    The launcher ends the others by SIGTERM, so that a rank with another signal was the first.
    """
    term = -signal.SIGTERM
    rank, code = min(ends.items(), key=lambda each: (each[1] >= 0, each[1] == term, each[0]))
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    hint = ""
    if code == -signal.SIGKILL:  # by a person, or by a system that had no memory left
        with contextlib.suppress(UserError, OSError):
            hint = f"; out of memory? if so, {remedy(run.read_config())}"
    return f"rank {rank} was ended by {how}, and the others with it{hint}"


def listen(line: int, stop: threading.Event, save: threading.Event) -> None:
    """Sets the events when a signal comes, or something on the lifeline, or its end."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(SAVING, lambda *_: save.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SAVING})

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(line, 1):
                save.set()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Executes the job given as the argument, with the ranks beside this one."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    stop, save = threading.Event(), threading.Event()
    listen(0, stop, save)
    job = Job.from_json(sys.argv[1])
    try:
        import torch

        from txlbench.runs.train_run import execute
        from txlbench.world import RankLost, join

        try:
            world = join(torch.device(job.device_of(int(os.environ["RANK"]))))
            with claimed_by_parent(job.directory):
                execute(job, stop.is_set, save, world)
            world.leave()
        except (RankLost, ClaimLost) as error:
            print(error, file=sys.stderr)
            return ExitStatus.INTERRUPTED
    except BaseException as error:
        record_failure(RunDirectory(job.directory), error)
        return ExitStatus.RUN_FAILED
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())

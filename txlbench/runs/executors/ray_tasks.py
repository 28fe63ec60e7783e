"""Launcher `ray`: each run is a Ray task, which starts the ordinary worker process on its node.

Driver and nodes talk through a small actor, the mailbox, which dies with the driver. A node that
hears nothing from it stops its run with a checkpoint; a run whose node dies is handed to another
one, where it goes on from what the driver has. Ray's own retries would start from what the driver
had when the run was handed over first.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from txlbench.data.download import own_checksum
from txlbench.errors import UserError
from txlbench.files import is_transient
from txlbench.machine import check_name, cores
from txlbench.records.claim import claimed, is_claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Failure, RunState
from txlbench.runs.executors.executor import POLL_SECONDS, Executor
from txlbench.runs.failure import describe
from txlbench.runs.job import STOPPING, Job
from txlbench.runs.plan import Request
from txlbench.runs.remote_run import (
    TOKEN,
    Assignment,
    Exchange,
    NodeReport,
    Orders,
    carry_out,
    files_of,
    receive_all,
)
from txlbench.runs.worker_process import GRACE_SECONDS

CONTACT_SECONDS = 20.0
"""A node that hears nothing for so long stops its run. Ray takes longer to give a node up."""
ANSWER_SECONDS = 10.0
MOST_LOSSES = 3
"""How often in a row a run may lose its node without getting any farther."""
STARTING = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
ON_NODES = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}
"""Else Ray kills the run together with the task, before it could write its checkpoint."""


@contextlib.contextmanager
def open_ray(
    request: Request, todo: int, warn: Callable[[str], None], processes: int
) -> Iterator["RayExecutor"]:
    """Connects to the Ray cluster inside, or to one that is started on this machine for as long.

    Args:
        processes: those of each run, at most.

    Raises:
        UserError: if there is no cluster at the address, or none of its nodes will ever do.
    """
    was_connected = ray.is_initialized()
    is_own = False if was_connected else _connect(request.launch.address)
    try:
        needs = Needs.of(request)
        _check_room(needs.options(processes), is_own, warn)
        yield RayExecutor(needs, min(request.jobs or todo, todo), warn)
    finally:
        if not was_connected:
            ray.shutdown()


def _connect(address: str | None) -> bool:
    """Connects; whether a cluster was started for that."""
    _check_answers(address)
    for name, value in STARTING.items():
        os.environ.setdefault(name, value)
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            try:
                ray.init(address=address or "auto", **quiet)
                return False
            except (ConnectionError, ValueError, RuntimeError) as error:
                if address is not None:
                    raise _no_cluster(address, error) from error
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, **quiet)
        return True
    finally:
        for number, handler in handlers.items():  # Ray sets its own
            signal.signal(number, handler)


def _check_answers(address: str | None) -> None:
    """Refuses HOST:PORT where nothing listens, which Ray itself tries for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str | None, error: Exception) -> UserError:
    return UserError(
        f"--address {address}: no Ray cluster there ({_line(error)})",
        "give the address that `ray start` printed, or none for a local one",
    )


@dataclass(frozen=True)
class Needs:
    """What runs take of their nodes.

    Attributes:
        cpus, gpus: of each run, whatever its processes; None for what follows from those.
        threads: of each process; None for its share of `cpus`, else one.
        has_gpu: whether each process takes a GPU if nothing is said.
        memory: bytes of each run; None for whatever.
        others: resources that the cluster's owner has named.
    """

    cpus: int | None
    gpus: int | None
    threads: int | None
    has_gpu: bool
    memory: int | None
    others: Mapping[str, float]

    @classmethod
    def of(cls, request: Request) -> "Needs":
        """From what was asked for, with GPUs where the device wants them or may have them."""
        launch, device = request.launch, request.device
        check_name(device)
        if ":" in device:
            problem = f"--device {device}: Ray chooses the GPU of each run"
            raise UserError(problem, "use --device cuda")
        if (device == "cpu" and launch.gpus) or (device == "cuda" and launch.gpus == 0):
            problem = f"--resource gpus={launch.gpus}: not with --device {device}"
            raise UserError(problem, "leave one of them out")
        present = ray.cluster_resources().get("GPU", 0) > 0
        has_gpu = device == "cuda" or (device == "auto" and present)
        others = _own_resources(launch.others)
        return cls(launch.cpus, launch.gpus, request.threads, has_gpu, launch.memory, others)

    def threads_of(self, processes: int) -> int:
        return self.threads or max(1, (self.cpus or 0) // processes)

    def gpus_of(self, processes: int) -> int:
        return processes * self.has_gpu if self.gpus is None else self.gpus

    def options(self, processes: int) -> dict[str, Any]:
        """Those of the task of a run of so many processes."""
        return {
            "num_cpus": self.cpus or self.threads_of(processes) * processes,
            "num_gpus": self.gpus_of(processes),
            "resources": dict(self.others),
            "runtime_env": ON_NODES,
            "max_retries": 0,
            **({} if self.memory is None else {"memory": self.memory}),
        }


def _own_resources(others: Mapping[str, str]) -> dict[str, float]:
    """Resources that the cluster's owner has named."""
    found = {}
    for key, text in others.items():
        try:
            found[key] = float(text)
        except ValueError:
            found[key] = math.nan
        if not 0 < found[key] < math.inf:
            raise UserError(f"--resource {key}={text}: not a number above 0", f"as {key}=1")
    return found


def _check_room(options: Mapping[str, Any], is_own: bool, warn: Callable[[str], None]) -> None:
    """Tells if no node has what a run takes; raises where none can come."""
    wanted = {
        "CPU": options["num_cpus"],
        "GPU": options["num_gpus"],
        "memory": options.get("memory", 0),
        **options["resources"],
    }
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(key, 0) >= value for key, value in wanted.items()) for node in nodes):
        return
    if is_own:
        (here,) = nodes
        lacking = {key: value for key, value in wanted.items() if here.get(key, 0) < value}
        said = ", ".join(f"{key} {v:g} (it has {here.get(key, 0):g})" for key, v in lacking.items())
        raise UserError(f"--resource: this machine lacks {said}", "ask for less of it")
    said = ", ".join(f"{key} {value:g}" for key, value in wanted.items() if value)
    warn(f"no node of the Ray cluster has {said}; runs wait until one joins that does")


class Mailbox:
    """The actor between driver and nodes: reports one way, orders the other."""

    def __init__(self) -> None:
        self._orders: dict[str, Orders] = {}
        self._reports: list[tuple[str, NodeReport]] = []

    def exchange(self, ticket: str, report: NodeReport) -> Orders:
        """For nodes: leaves a report, takes the orders."""
        self._reports.append((ticket, report))
        return self._orders.get(ticket, Orders())

    def collect(self, orders: Mapping[str, Orders]) -> list[tuple[str, NodeReport]]:
        """For the driver: replaces all orders, takes the reports."""
        self._orders = dict(orders)
        reports, self._reports = self._reports, []
        return reports


def run_on_node(task: Assignment, ticket: str, mailbox: Any) -> RunState:
    """The task: carries out the run on the node that it is called on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver passes it on

    def say(report: NodeReport) -> Orders:
        return ray.get(mailbox.exchange.remote(ticket, report), timeout=CONTACT_SECONDS)

    try:
        return carry_out(task, Exchange(say, ray.put, ray.get))
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class _Task:
    """A run that was handed to Ray.

    Attributes:
        ticket: names it in the mailbox; another one each time it is handed over.
        has_begun: a node has it.
        is_elsewhere: another process had the run already.
        claim: held while files are brought back.
        losses: nodes lost in a row without progress, which is `mark` bytes of metrics.
        fault: why its files cannot be brought back.
    """

    job: Job
    orders: Orders = field(default_factory=Orders)
    ticket: str = ""
    ref: Any = None
    has_begun: bool = False
    is_withdrawn: bool = False
    is_elsewhere: bool = False
    claim: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    losses: int = 0
    mark: int = 0
    fault: OSError | None = None

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.job.directory)

    def stop(self) -> None:
        self.orders = replace(self.orders, stop=True, files=None)

    def release(self) -> None:
        self.claim.close()


class RayExecutor(Executor):
    """Hands jobs to the Ray cluster that this process is connected to.

    Args:
        needs: what each run takes.
        warn: told of nodes that died.
    """

    def __init__(self, needs: Needs, at_once: int, warn: Callable[[str], None]) -> None:
        super().__init__(at_once)
        self._needs, self._warn = needs, warn
        self._function = ray.remote(run_on_node)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here)
        self._mailbox: Any = actor.remote()
        self._tasks: list[_Task] = []
        self._lost: list[_Task] = []
        self._saves = 0

    def run(
        self,
        jobs: Iterable[Job],
        ended: Callable[[Job, RunState], bool],
        tick: Callable[[], None],
    ) -> None:
        """Runs all jobs as `Executor.run` does; UserError if the cluster itself is lost."""
        try:
            super().run(jobs, ended, tick)
        except RayError as error:
            problem = f"the Ray cluster is gone ({type(error).__name__}: {_line(error)})"
            remedy = "runs stop with a checkpoint; type it again when it is back"
            raise UserError(problem, remedy) from error

    @property
    def running(self) -> int:
        return len(self._tasks) + len(self._lost)

    def start(self, job: Job) -> None:
        self._hand_over(_Task(job))

    def _hand_over(self, task: _Task) -> None:
        job, run = task.job, task.run
        token, task.ticket = uuid.uuid4().hex, uuid.uuid4().hex
        task.has_begun, task.orders = False, Orders(saves=self._saves)
        task.mark = _size(run)
        (run.path / TOKEN).write_text(token)
        corpus = run.read_config().corpus
        text = None if corpus.path is None else own_checksum(corpus)
        device = "cuda" if self._needs.gpus_of(job.processes) else "cpu"
        placed = replace(job, directory=job.directory.absolute(), device=device)
        threads = self._needs.threads_of(job.processes)
        assignment = Assignment(placed, token, Path.cwd(), corpus, text, threads)
        function = self._function.options(**self._needs.options(job.processes))
        task.ref = function.remote(assignment, task.ticket, self._mailbox)
        self._tasks.append(task)

    def collect(self) -> list[tuple[Job, RunState]]:
        refs = [task.ref for task in self._tasks]
        ready = ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else []
        self._talk()  # after that: what a task said before its end is taken in first
        over = []
        for task in [task for task in self._tasks if task.ref in ready]:
            self._tasks.remove(task)
            state = self._end(task)
            if state is not None:
                over.append((task.job, state))
        for task in [task for task in self._lost if not is_claimed(task.job.directory)]:
            self._lost.remove(task)
            task.job = replace(task.job, attempts=task.run.attempts)
            self._hand_over(task)
        return over

    def withdraw(self) -> None:
        for task in self._tasks:
            if not task.has_begun:
                task.is_withdrawn = True
                task.stop()
                ray.cancel(task.ref)

    def save(self) -> None:
        self._saves += 1
        for task in self._tasks:
            task.orders = replace(task.orders, saves=self._saves)

    def stop(self) -> None:
        """Gives up those that take longer than a while for their checkpoints."""
        self._lost = []
        for task in self._tasks:
            task.stop()
        deadline = time.monotonic() + GRACE_SECONDS + CONTACT_SECONDS
        with contextlib.suppress(RayError):
            self.withdraw()
            while self._tasks and time.monotonic() < deadline:
                self.collect()
                self._lost = []
                time.sleep(POLL_SECONDS)
        for task in self._tasks:
            task.release()
        self._tasks = []

    def _talk(self) -> None:
        """Takes what nodes have said, and leaves what they are to do."""
        orders = {task.ticket: task.orders for task in self._tasks}
        by_ticket = {task.ticket: task for task in self._tasks}
        for ticket, report in ray.get(self._mailbox.collect.remote(orders)):
            if ticket in by_ticket:
                self._take(by_ticket[ticket], report)

    def _take(self, task: _Task, report: NodeReport) -> None:
        task.has_begun = True
        if report.asks:
            if not task.orders.stop and task.orders.files is None:
                self._prepare(task, report.text)
            return
        task.orders = replace(task.orders, files=None)
        if report.parts and task.fault is None:
            try:
                receive_all(task.job.directory, report.parts, ray.get)
            except OSError as error:  # the disk is full: what is there already can be gone on from
                task.fault = error
                task.stop()

    def _prepare(self, task: _Task, text: bool) -> None:
        """Claims the run for a node that does not see it, and gets its files ready."""
        claim = task.claim.enter_context(claimed(task.job.directory, patience=0.0))
        if claim is None or task.job.attempts not in (None, task.run.attempts):
            task.is_elsewhere = True
            task.release()
            task.stop()
            return
        task.claim.enter_context(claim.kept())
        task.orders = replace(task.orders, files=files_of(task.run, text, ray.put))

    def _end(self, task: _Task) -> RunState | None:
        """The state after a task's end; None if it goes on on another node or never began."""
        error: Failure | None = None
        try:
            state = RunState(ray.get(task.ref))
        except TaskCancelledError:
            return None
        except RayTaskError as found:
            cause = found.cause if isinstance(found.cause, Exception) else found
            if isinstance(cause, RayError) and cause is not found:
                return self._lose(task, cause)
            error = describe(cause)
            state = RunState.INTERRUPTED if is_transient(cause) else RunState.FAILED
        except RayError as found:
            return self._lose(task, found)
        if task.fault is not None:
            state, error = RunState.INTERRUPTED, describe(task.fault)
        return self._finish(task, state, error)

    def _finish(self, task: _Task, state: RunState, error: Failure | None) -> RunState | None:
        if error is not None:
            with contextlib.suppress(OSError):
                task.run.set_state(state, error)
        with contextlib.suppress(OSError):
            (task.job.directory / TOKEN).unlink(missing_ok=True)
        task.release()
        if task.is_withdrawn:
            return None
        return RunState.RUNNING if task.is_elsewhere else state

    def _lose(self, task: _Task, error: RayError) -> RunState | None:
        """Has the run go on elsewhere, unless it has lost too many nodes without any progress."""
        if task.is_withdrawn or task.orders.stop:
            return self._finish(task, RunState.INTERRUPTED, None)
        task.losses = 1 if _size(task.run) > task.mark else task.losses + 1
        said = type(error).__name__
        if task.losses >= MOST_LOSSES:
            why = f"lost {task.losses} nodes in a row without progress ({said}: {_line(error)})"
            failure = Failure(type=said, message=why, where="process")
            return self._finish(task, RunState.INTERRUPTED, failure)
        task.release()
        self._lost.append(task)
        if task.has_begun:
            self._warn(f"{task.run.id}: its node is gone ({said}); it goes on from its checkpoint")
        return None


def _size(run: RunDirectory) -> int:
    return run.metrics_file.stat().st_size if run.metrics_file.exists() else 0


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:200]

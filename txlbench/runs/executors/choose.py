"""The executor that an ablation asks for, open as long as its runs go on.

A launcher's library is imported here only if it is asked for.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec

from txlbench.errors import UserError
from txlbench.machine import choose_devices, torchrun_processes
from txlbench.runs.executors.executor import Executor
from txlbench.runs.executors.process_pool import ProcessPool
from txlbench.runs.plan import Request


@contextmanager
def open_executor(
    request: Request,
    runs: int,
    todo: int,
    warn: Callable[[str], None],
    processes: int = 1,
) -> Iterator[Executor]:
    """The executor of `request.launch`, connected inside; where nothing is to be done, no cluster.

    Args:
        runs: runs of the whole experiment, from which the default number of threads follows.
        todo: runs that are to be done.
        warn: told what people should know while runs go on.
        processes: those of each run, at most.

    Raises:
        UserError: if the device, the cluster or the launcher's library is not there.
    """
    if torchrun_processes() > 1:
        from txlbench.runs.executors.torchrun import TorchrunExecutor

        with closing(TorchrunExecutor(request.device)) as torchrun:
            yield torchrun
        return
    launcher = request.launch.launcher if todo else "process"
    if launcher == "process":
        devices = choose_devices(
            request.device, request.jobs, runs, request.threads, todo=todo, processes=processes
        )
        yield ProcessPool(devices, os.environ)
        return
    _check_extra(launcher)
    if launcher == "ray":
        from txlbench.runs.executors.ray_tasks import open_ray

        with open_ray(request, todo, warn, processes) as executor:
            yield executor
        return
    from txlbench.runs.executors.slurm import SlurmExecutor

    yield SlurmExecutor(request, todo)


LIBRARIES = {"ray": "ray", "slurm": "submitit"}
"""What a launcher needs, which the extra of the launcher's name installs."""


def _check_extra(launcher: str) -> None:
    if find_spec(LIBRARIES[launcher]) is None:
        raise UserError(
            f"--launcher {launcher}: {LIBRARIES[launcher]} is not installed",
            f"pip install 'txlbench[{launcher}]'",
        )

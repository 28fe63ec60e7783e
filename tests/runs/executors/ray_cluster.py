"""A Ray cluster of two nodes on this machine, whose processes can be killed as a machine dies."""

import contextlib
import os
import signal
from pathlib import Path

import txlbench
from tests.runs.trial import Watched, write_spec
from txlbench.runs.ablation import ablate
from txlbench.runs.executors.executor import Launch
from txlbench.runs.plan import Request, open_experiment

ROOT = Path(txlbench.__file__).parents[1]
LONG = {
    "train.max_step": 400,
    "train.eval_interval": 40,
    "train.log_interval": 10,
    "evaluate.attention_lengths": [8],
}
"""Settings of runs that last some seconds and write a checkpoint every second or so."""


class TwoNodes:
    """A head that stays, and a second node that may be killed and started anew.

    Attributes:
        address: of the cluster.
    """

    def __init__(self):
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 10}
        self._cluster.add_node(num_cpus=2, include_dashboard=False, _system_config=quick)
        self.address = self._cluster.address
        self.second = None

    def add(self):
        self.second = self._cluster.add_node(num_cpus=1)
        self._cluster.wait_for_nodes()

    def is_on_second(self, pid):
        """Whether process `pid` descends from the second node's daemon."""
        return pid in descendants(self._raylet)

    def kill_second(self):
        """Ends all of its processes at once, runs too, as a power cut does."""
        for pid in [*descendants(self._raylet), self._raylet]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(self.second, allow_graceful=False)
        self.second = None

    @property
    def _raylet(self):
        ((raylet,),) = [
            [process.process.pid for process in found]
            for name, found in self.second.all_processes.items()
            if name == "raylet"
        ]
        return raylet

    def stop(self):
        self._cluster.shutdown()

    def ablate(self, watched=None, **request):
        """Runs spec.yaml on the cluster, in this process."""
        watched = watched or Watched()
        launch = Launch.of("ray", self.address, request.pop("resources", ()))
        request = Request(Path("spec.yaml"), device="cpu", launch=launch, **request)
        return ablate(request, watched), watched

    def command(self, *words):
        """The same as a command line."""
        return ["ablate", "spec.yaml", "--launcher", "ray", "--address", self.address, *words]


def descendants(pid):
    """Processes below `pid`, the nearest first."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(after_name[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def long_runs(count, **settings):
    """Writes spec.yaml with `count` runs that last a while; their directories."""
    write_spec({**LONG, **settings}, seeds=list(range(1, count + 1)))
    return [run.directory for run in open_experiment(Request(Path("spec.yaml")))[2]]

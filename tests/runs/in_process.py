"""An ablation without further processes, for tests of what is run and what is said."""

from pathlib import Path

from tests.runs.trial import Watched
from txlbench.records.run_directory import RunDirectory
from txlbench.runs.ablation import ablate
from txlbench.runs.failure import record_failure
from txlbench.runs.plan import Request
from txlbench.runs.train_run import execute


class OneProcess:
    """Runs jobs one after the other in this process, and records failures as a worker does."""

    def __init__(self, devices, environment):
        self.at_once = devices.jobs

    def run(self, jobs, ended, tick):
        for job in jobs:
            tick()
            try:
                state = execute(job, lambda: False)
            except Exception as error:
                record_failure(RunDirectory(job.directory), error)
                state = RunDirectory(job.directory).state
            if not ended(job, state):
                return


class NoMirror:
    """MLflow's part has tests of its own, and takes seconds to start."""

    def __init__(self, directory):
        self.followed = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def follow(self):
        self.followed = True

    def finish(self):
        return ""


def run_suite(**request):
    watched = Watched()
    outcome = ablate(Request(Path("spec.yaml"), device="cpu", **request), watched)
    return outcome, watched

"""One run from its directory to its summary: the place where all parts come together."""

import threading
from collections.abc import Callable

import torch

from txlbench.data.preparation import prepare
from txlbench.execution.job import Job
from txlbench.execution.measure import measure
from txlbench.execution.training_run import TrainingRun
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState
from txlbench.seeding import seed_everything


def execute(
    job: Job, should_stop: Callable[[], bool], save_asked: threading.Event | None = None
) -> RunState:
    """Trains and measures what is missing; returns the state it leaves the run in.

    Args:
        should_stop: asked between steps and between measurements; True leaves a checkpoint and
            the state interrupted.
        save_asked: set from outside when a checkpoint is wanted now; training goes on after it.
    """
    run = RunDirectory(job.directory)
    config = run.read_config()
    device = torch.device(job.device)
    corpus = prepare(config.corpus)
    run.start()
    if "training" not in run.read_summary():
        seed_everything(config.seed)
        asked = save_asked or threading.Event()
        if not TrainingRun(run, config, corpus, device, should_stop, asked).run():
            run.set_state(RunState.INTERRUPTED)
            return RunState.INTERRUPTED
        run.set_state(RunState.TRAINED)
    complete = measure(run, config, corpus, device, job.evaluations, should_stop)
    state = RunState.FINISHED if complete else RunState.INTERRUPTED
    run.set_state(state)
    return state

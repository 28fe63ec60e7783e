"""The main job: an experiment file becomes trained runs, tables, figures and MLflow entries."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from txlbench.config.clusters import clusters_of
from txlbench.data.corpus import Corpus
from txlbench.data.preparation import prepare
from txlbench.errors import ExitStatus, UserError
from txlbench.execution.devices import Devices, choose_devices
from txlbench.execution.job import Job
from txlbench.execution.mirroring import Mirror
from txlbench.execution.notes import notes_on
from txlbench.execution.plan import Need, PlannedRun, open_experiment
from txlbench.execution.pool import ProcessPool
from txlbench.execution.renewed import renewed
from txlbench.execution.request import Request
from txlbench.execution.space import check_space
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.states import RunState
from txlbench.reporting.report import report
from txlbench.tracking.backlog import nothing_to_deliver
from txlbench.tracking.store import ui_command


@dataclass(frozen=True)
class Outcome:
    """What an ablation came to.

    Attributes:
        status: DONE if every run asked for is finished.
        table: the result table for a terminal.
        places: what to look at, by name.
    """

    status: ExitStatus
    table: str
    places: tuple[tuple[str, str], ...]


class Watcher(Protocol):
    """Is told what happens; the command line shows it."""

    def warn(self, message: str) -> None: ...
    def corpus(self, corpus: Corpus) -> None: ...
    def start(self, waiting: Sequence[PlannedRun], finished: int, jobs: int) -> None: ...
    def tick(self) -> None: ...
    def ended(self, run: PlannedRun, state: RunState) -> None: ...
    def stop(self) -> None: ...


def ablate(request: Request, watcher: Watcher) -> Outcome:
    """Trains and measures what is missing, then writes tables and figures.

    Raises:
        UserError: for a fault that all runs share; then none has started.
    """
    experiment, directory, plan = open_experiment(request)
    for warning in experiment.warnings:
        watcher.warn(warning)
    corpora = _prepare_corpora(plan, watcher)
    for run in plan:
        _set_stale_aside(run, corpora[run.id], watcher)
    todo = _choose(plan, request, watcher)
    devices = choose_devices(request.device, request.jobs, len(todo), request.threads)
    sizes = {name: len(corpus.vocabulary) for name, corpus in corpora.items()}
    check_space(directory.path, todo, sizes, devices.jobs)
    _make_directory(directory)
    for line in renewed(plan, directory):
        watcher.warn(line)
    directory.write_spec(experiment)
    with Mirror(directory) as mirror:
        if todo:
            mirror.follow()
        _run(plan, todo, devices, request.keep_going, watcher)
        written = report(directory, request.command)
        if not nothing_to_deliver(directory.path):
            mirror.follow()
        if complaint := mirror.finish():
            watcher.warn(complaint)
    bad = any(run.directory.current_state is not RunState.FINISHED for run in plan)
    status = ExitStatus.RUN_FAILED if bad else ExitStatus.DONE
    return Outcome(status, written.text, _places(directory))


def _places(directory: ExperimentDirectory) -> tuple[tuple[str, str], ...]:
    return (
        ("table", str(directory.table("md"))),
        ("figures", str(directory.figures / "*.png")),
        ("runs", str(directory.runs_directory)),
        ("MLflow", ui_command(directory.path)),
    )


def _make_directory(directory: ExperimentDirectory) -> None:
    try:
        directory.runs_directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory.runs_directory, os.W_OK)
    except OSError as error:
        raise UserError(f"{directory.path}: {error.strerror}", "choose another --out") from error
    if not writable:
        raise UserError(f"{directory.path}: not writable", "choose another --out")


def _prepare_corpora(plan: list[PlannedRun], watcher: Watcher) -> dict[str, Corpus]:
    """Prepares each corpus once, and holds every run against it; gives the corpus by run id."""
    prepared: dict[str, Corpus] = {}
    corpora: dict[str, Corpus] = {}
    for run in plan:
        name = run.config.corpus.model_dump_json()
        if name not in prepared:
            prepared[name] = prepare(run.config.corpus)
            watcher.corpus(prepared[name])
        _check_fit(run, prepared[name])
        corpora[run.id] = prepared[name]
    return corpora


def _check_fit(run: PlannedRun, corpus: Corpus) -> None:
    """Refuses what only the corpus can tell to be impossible."""
    clusters_of(run.config.model, len(corpus.vocabulary))
    predictions, streams = corpus.tokens["train"] - 1, run.config.train.batch_size
    if predictions < streams:
        raise UserError(
            f"row '{run.labels[0]}': train.batch_size: {streams} streams cannot be cut from "
            f"{max(0, predictions)} predictions of {corpus.name}'s train split",
            "lower it or give a longer text",
        )


def _set_stale_aside(run: PlannedRun, corpus: Corpus, watcher: Watcher) -> None:
    """Renames a run that was trained on other bytes than the corpus has now."""
    seen = run.directory.read_facts().get("corpus", {}).get("checksum")
    if seen is None or seen == corpus.checksum:
        return
    path = run.directory.path
    number = 1
    while (aside := path.with_name(f"{path.name}.stale-{number}")).exists():
        number += 1
    path.rename(aside)
    watcher.warn(f"{corpus.name} has changed since {run.title} was trained; kept as {aside.name}")


def _choose(plan: list[PlannedRun], request: Request, watcher: Watcher) -> list[PlannedRun]:
    """The runs to start now; says why others are left out."""
    wanted = {Need.TRAINING, Need.EVALUATION} | ({Need.RETRY} if request.retry else set())
    todo = []
    for run in plan:
        if run.directory.current_state is RunState.RUNNING:
            watcher.warn(f"{run.title} is being run by another process; left to it")
        elif (need := run.need()) in wanted:
            todo.append(run)
        elif need is Need.RETRY:
            state = run.directory.state
            watcher.warn(f"{run.title} {state} before and is not tried again without --retry")
    return todo


def _run(
    plan: list[PlannedRun],
    todo: list[PlannedRun],
    devices: Devices,
    keep_going: bool,
    watcher: Watcher,
) -> None:
    finished = sum(run.need() is Need.NOTHING for run in plan)
    by_path = {run.directory.path: run for run in todo}
    for run in todo:
        run.directory.path.mkdir(parents=True, exist_ok=True)
        run.directory.write_config(run.config, run.paper, run.labels[0])
        if run.need() is Need.RETRY:
            run.directory.set_state(RunState.INTERRUPTED)
    common = _CommonFault(keep_going, watcher)

    def ended(job: Job, state: RunState) -> bool:
        run = by_path[job.directory]
        watcher.ended(run, state)
        for note in notes_on(run, state):
            watcher.warn(f"{run.title}: {note}")
        return common.allows_more(run, state)

    watcher.start(todo, finished, devices.jobs)
    try:
        jobs = [Job(run.directory.path, "cpu", run.evaluations) for run in todo]
        ProcessPool(devices, os.environ).run(jobs, ended, watcher.tick)
    finally:
        watcher.stop()


class _CommonFault:
    """Stops a grid whose first two ended runs failed alike: the fault is common to all."""

    def __init__(self, keep_going: bool, watcher: Watcher) -> None:
        self._keep_going = keep_going
        self._watcher = watcher
        self._faults: list[tuple[str, str] | None] = []

    def allows_more(self, run: PlannedRun, state: RunState) -> bool:
        """Whether further runs may start after this one ended."""
        error = run.directory.read_status().get("error", {})
        self._faults.append((error["type"], error["where"]) if state is RunState.FAILED else None)
        first = self._faults[:2]
        if self._keep_going or len(first) < 2 or None in first or first[0] != first[1]:
            return True
        if len(self._faults) > 2:
            return False  # was running beside them; said already
        self._watcher.warn(
            f"the first two runs failed alike ({error['type']}: {error['message']}); "
            "nothing further is started (--keep-going overrides)"
        )
        return False

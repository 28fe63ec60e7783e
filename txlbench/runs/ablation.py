"""Runs an experiment: prepares texts, trains and measures what is missing, reports it.

Nothing starts before everything that all runs share was checked. The caller is told of what happens
through a `Watcher`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from txlbench.config.grid import Experiment
from txlbench.config.measurements import all_measurements, check_length
from txlbench.config.model import clusters_of
from txlbench.config.train import check_divided
from txlbench.data.corpus import Corpus
from txlbench.data.prepare import prepare
from txlbench.errors import ExitStatus, UserError
from txlbench.machine import choose_devices, torchrun_processes
from txlbench.records.claim import claimed
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import set_aside
from txlbench.records.schema import RunState
from txlbench.reporting.report import report
from txlbench.runs.dry_run import check_memory, check_space, check_writable, long_training
from txlbench.runs.executors.choose import open_executor
from txlbench.runs.executors.executor import Executor
from txlbench.runs.job import Job
from txlbench.runs.merge import copy_run
from txlbench.runs.mirror_process import MirrorProcess
from txlbench.runs.plan import (
    Need,
    PlannedRun,
    Request,
    chosen_rows,
    make_plan,
    open_experiment,
    trained_elsewhere,
    with_evaluation,
)
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.status import changed_runs
from txlbench.runs.tuning import check_optuna, check_tuning, open_studies, run_trials, winners
from txlbench.runs.work_queue import WorkQueue
from txlbench.tracking.backlog import nothing_to_deliver, where_to_look


def notes_on(run: PlannedRun, state: RunState) -> list[str]:
    """The run's own notes, and a guess where it stopped without a word."""
    status = run.directory.read_status()
    notes = list(status.notes)
    if state is RunState.INTERRUPTED and status.error is None:
        folder = run.directory.path.parent.parent
        notes.append(f"stopped by a signal, or the disk of {folder} is full; type it again")
    return notes


@dataclass(frozen=True)
class Ablation:
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
    def say(self, message: str) -> None: ...
    def tick(self) -> None: ...
    def ended(self, run: PlannedRun, state: RunState) -> None: ...
    def stop(self) -> None: ...


def ablate(request: Request, watcher: Watcher) -> Ablation:
    """Tunes rows if asked to, trains and measures what is missing, writes tables and figures.

    Other calls may do the same at the same time on the same output: they share the runs.

    Raises:
        UserError: for a fault that all runs share; then none has started.
    """
    experiment, directory, plan = open_experiment(request)
    for warning in (*experiment.warnings, *long_training(describe_plan(plan), request.device)):
        watcher.warn(warning)
    if request.tune_trials is not None:
        check_tuning(request, experiment)
        check_optuna()
    elif experiment.search:
        watcher.warn("`tune` is searched with --tune-trials N; rows are trained as they stand")
    check_writable(directory.path)
    if request.launch.launcher == "process" and request.device != "auto":
        choose_devices(request.device, request.jobs, len(plan))
    corpora = _prepare_corpora(plan, watcher)
    if request.tune_trials is not None:
        tuned = _tune(request, request.tune_trials, experiment, directory, plan, corpora, watcher)
        if tuned is None:
            said = "Tuning is not complete: type it again, and it goes on."
            return Ablation(ExitStatus.RUN_FAILED, said, _places(directory))
        experiment, by_corpus = tuned, {each.config.corpus: corpora[each.id] for each in plan}
        plan = make_plan(chosen_rows(experiment, request), directory)
        corpora = {run.id: by_corpus[run.config.corpus] for run in plan}
    whole = [run for run in plan if not _is_damaged(run, watcher)]
    for run in whole:
        _set_stale_aside(run, corpora[run.id], watcher)
    todo = _choose(whole, request, watcher)
    sizes = {name: len(corpus.vocabulary) for name, corpus in corpora.items()}
    processes = _processes(plan)
    with (
        open_executor(
            request, len(experiment.runs()), len(todo), watcher.warn, processes
        ) as executor,
        MirrorProcess(directory) as mirror,
    ):
        check_space(directory.path, todo, sizes, executor.at_once)
        if todo and request.launch.launcher == "process":
            places = choose_devices(request.device, executor.at_once, executor.at_once)
            for warning in check_memory(todo, sizes, places):
                watcher.warn(warning)
        _make_directory(directory)
        for line in changed_runs(whole, directory):
            watcher.warn(line)
        directory.write_spec(experiment)
        for run in todo:
            _copy_from_elsewhere(run, corpora[run.id], watcher)
        todo = [run for run in todo if run.need() is not Need.NOTHING]
        if todo:
            directory.add_commands([request.command])
            mirror.follow()
        _run(plan, todo, executor, request.keep_going, watcher)
        written = report(directory, request.command, request.look)
        if not nothing_to_deliver(directory.path):
            mirror.follow()
        if complaint := mirror.finish():
            watcher.warn(complaint)
    bad = any(
        run.directory.current_state is not RunState.FINISHED or run.need() is not Need.NOTHING
        for run in whole
    )
    status = ExitStatus.RUN_FAILED if bad or len(whole) < len(plan) else ExitStatus.DONE
    return Ablation(status, written.text, _places(directory))


def _tune(
    request: Request,
    trials: int,
    experiment: Experiment,
    directory: ExperimentDirectory,
    plan: list[PlannedRun],
    corpora: dict[str, Corpus],
    watcher: Watcher,
) -> Experiment | None:
    """The experiment with the best settings of each row's trials; None if some were interrupted."""
    _make_directory(directory)
    if not directory.spec_file.is_file():  # so that `status` shows what is trained
        directory.write_spec(experiment)
    studies = open_studies(experiment, directory)
    asked = {line.label for line in chosen_rows(experiment, request).lines}
    todo = [each for each in studies if each.line.label in asked]
    by_corpus = {run.config.corpus: corpora[run.id] for run in plan}
    count = len(todo) * trials
    with open_executor(request, count, count, watcher.warn, _processes(plan)) as executor:

        def train(runs: list[PlannedRun]) -> None:
            for run in runs:
                corpus = by_corpus[run.config.corpus]
                _set_stale_aside(run, corpus, watcher)
                _copy_from_elsewhere(run, corpus, watcher)
            left = [run for run in runs if run.need() is Need.TRAINING]
            directory.add_commands([request.command])
            _run(runs, left, executor, request.keep_going, watcher)

        if not run_trials(todo, trials, executor.at_once, directory, train):
            return None
    found, untuned = winners(experiment, studies)
    for label in untuned:
        watcher.warn(f"{label}: no trial came to a loss on valid; the row is trained as it stands")
    return found


def _processes(plan: list[PlannedRun]) -> int:
    """The processes of each run, at most; those of an outer torchrun, which have to divide all."""
    if (processes := torchrun_processes()) == 1:
        return max((run.config.train.devices for run in plan), default=1)
    for run in plan:
        try:
            check_divided(run.config.train, processes, f"torchrun's {processes} processes")
        except ValueError as error:
            remedy = "start another number of processes, or set train.batch_size"
            raise UserError(f"row '{run.labels[0]}': {error}", remedy) from None
    return processes


def _places(directory: ExperimentDirectory) -> tuple[tuple[str, str], ...]:
    return (
        ("page", str(directory.page)),
        ("table", str(directory.table("md"))),
        ("figures", str(directory.figures / "*.png")),
        ("runs", str(directory.runs_directory)),
        ("MLflow", where_to_look(directory.path)),
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
    for evaluate in run.evaluations:
        for measurement in all_measurements(with_evaluation(run.config, evaluate)):
            check_length(measurement, corpus.count(measurement.split) - 1)


def _is_damaged(run: PlannedRun, watcher: Watcher) -> bool:
    """Whether a file of the run cannot be read; says so, and that the run is left alone."""
    damage = run.directory.damage()
    if damage:
        watcher.warn(f"{run.title} is left alone: {damage}")
    return bool(damage)


def _set_stale_aside(run: PlannedRun, corpus: Corpus, watcher: Watcher) -> None:
    """Renames a run that was trained on other bytes than the corpus has now."""
    if not _is_stale(run, corpus):
        return
    with claimed(run.directory.path) as claim:
        if claim is None:
            watcher.warn(f"{run.title} is being trained on an earlier {corpus.name} elsewhere")
        elif _is_stale(run, corpus):  # as no other call has set it aside meanwhile
            aside = set_aside(run.directory.path)
            said = f"{corpus.name} has changed since {run.title} was trained"
            watcher.warn(f"{said}; kept as {aside.name}")


def _is_stale(run: PlannedRun, corpus: Corpus) -> bool:
    return run.directory.read_facts().corpus.checksum not in (None, corpus.checksum)


def _copy_from_elsewhere(run: PlannedRun, corpus: Corpus, watcher: Watcher) -> None:
    """Takes over a run that another experiment under results/ has trained on the same bytes."""
    other = trained_elsewhere(run)
    if other is None or _is_stale(replace(run, directory=other), corpus):
        return
    copy_run(
        other.path,
        run.directory.path,
        lambda copy: copy.write_config(run.config, run.paper, run.labels[0]),
    )
    watcher.say(f"{run.title} is copied from {other.path}, where it was trained")


def _choose(plan: list[PlannedRun], request: Request, watcher: Watcher) -> list[PlannedRun]:
    """The runs that lack something; says why others are left out."""
    wanted = {Need.TRAINING, Need.EVALUATION} | ({Need.RETRY} if request.retry else set())
    todo = []
    for run in plan:
        if (need := run.need()) is Need.EVALUATION and not run.directory.has_weights:
            watcher.warn(f"{run.title}: no weights are here to measure; --out DIR trains it anew")
        elif need in wanted:
            todo.append(run)
        elif need is Need.RETRY:
            state = run.directory.state
            watcher.warn(f"{run.title} {state} before and is not tried again without --retry")
    return todo


def _run(
    plan: list[PlannedRun],
    todo: list[PlannedRun],
    executor: Executor,
    keep_going: bool,
    watcher: Watcher,
) -> None:
    """Does the runs of `todo` that no other call does, and waits for the others."""
    finished = sum(run.need() is Need.NOTHING for run in plan)
    by_path = {run.directory.path: run for run in todo}
    common = FailFast(keep_going, watcher)
    queue = WorkQueue(todo, watcher.say)

    def ended(job: Job, state: RunState) -> bool:
        run = by_path[job.directory]
        if state is RunState.RUNNING:  # another call has it
            return True
        queue.end(run)
        watcher.ended(run, state)
        for note in notes_on(run, state):
            watcher.warn(f"{run.title}: {note}")
        return common.allows_more(run, state)

    watcher.start(todo, finished, executor.at_once)
    try:
        while queue.wait(watcher.tick):
            executor.run(queue.jobs(), ended, watcher.tick)
            if common.was_met:
                break
    finally:
        watcher.stop()


class FailFast:
    """Stops a grid whose first two ended runs failed alike: the fault is common to all."""

    def __init__(self, keep_going: bool, watcher: Watcher) -> None:
        self._keep_going = keep_going
        self._watcher = watcher
        self._faults: list[tuple[str, str] | None] = []
        self.was_met = False

    def allows_more(self, run: PlannedRun, state: RunState) -> bool:
        """Whether further runs may start after this one ended."""
        error = run.directory.read_status().error if state is RunState.FAILED else None
        self._faults.append((error.type, error.where) if error else None)
        first = self._faults[:2]
        if self._keep_going or len(first) < 2 or None in first or first[0] != first[1]:
            return True
        if not self.was_met:
            self.was_met = True
            self._watcher.warn(
                f"the first two runs failed alike ({error}); "
                "nothing further is started (--keep-going overrides)"
            )
        return False

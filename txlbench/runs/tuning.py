"""Tunes each row of an experiment by Optuna: which settings, how they fared, which were best.

A trial is an ordinary run of the row with the first seed, which is trained and not measured; its
value is the lowest loss on valid. Optuna's journal beside the runs holds what was asked and what
came of it, so that a call that was killed goes on where it was: trials that are begun in the
journal are trained on, and what is proposed next depends on the journal alone.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlbench.config.grid import Experiment, Line
from txlbench.config.identity import decisive_settings, fingerprint
from txlbench.config.search_range import SearchRange, Tuned
from txlbench.errors import UserError
from txlbench.machine import torchrun_processes
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import RunState
from txlbench.runs.plan import PlannedRun, Request, make_plan

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

STARTUP = 5
"""Trials at random before the sampler (TPE) learns; the first has the row's own values."""
DIVERGED_LOSS = 1000.0
"""The value of a trial that diverged, in nats: such settings are avoided."""
DIGITS = 4
"""Significant digits of tuned numbers, so that a configuration can be read and typed."""


def check_tuning(request: Request, experiment: Experiment) -> None:
    """Refuses (UserError) to tune what has nothing to be tuned."""
    if not experiment.search:
        raise UserError(
            f"--tune-trials: {request.spec} has nothing to tune",
            "add tune: {train.lr: [1e-4, 3e-3]} to it, or drop the option",
        )
    if torchrun_processes() > 1:
        raise UserError("--tune-trials: not under torchrun", "set train.devices instead")


def check_optuna() -> None:
    """Refuses (UserError) to tune without Optuna; dry runs need none."""
    if find_spec("optuna") is None:
        remedy = "pip install 'txlbench[tune]'"
        raise UserError("--tune-trials: Optuna is not installed", remedy)


@dataclass(frozen=True)
class RowStudy:
    """The trials of one row, as its study in the journal holds them.

    Attributes:
        seed: of every trial.
    """

    experiment: Experiment
    line: Line
    study: "Study"
    seed: int

    @property
    def search(self) -> Mapping[str, SearchRange]:
        return self.experiment.search

    @property
    def trials(self) -> int:
        """Trials that were begun."""
        return len([each for each in self.study.get_trials(deepcopy=False) if each.params])

    def begun(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and settings of each trial whose outcome is not known."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING":
                yield trial.number, self._settings(trial.params)

    def ask(self) -> None:
        """Begins one more trial."""
        from optuna.samplers import TPESampler

        number = len(self.study.get_trials(deepcopy=False))
        if number == 0 and (own := self._own_values()):
            self.study.enqueue_trial(own)
        seed = int(fingerprint([self.study.study_name, number]), 16) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a sampler's option that may change
            self.study.sampler = TPESampler(n_startup_trials=STARTUP, constant_liar=True, seed=seed)
            self.study.ask({key: _distribution(each) for key, each in self.search.items()})

    def planned(self, settings: Mapping[str, Any], directory: ExperimentDirectory) -> PlannedRun:
        """The run of a trial; UserError if there can be none of such settings."""
        row = replace(self.experiment, lines=(self.line,))
        plan = make_plan(row.with_settings({self.line.label: settings}), directory)
        (run,) = (run for run in plan if run.config.seed == self.seed)
        values = ", ".join(f"{key} {value}" for key, value in settings.items())
        return replace(run, labels=(f"{self.line.label}, {values}",), evaluations=())

    def tell(self, number: int, run: PlannedRun | None) -> bool:
        """Notes what became of a trial, if it ended: False if its run was interrupted."""
        state, loss = RunState.FAILED, None
        if run is not None:
            state = run.directory.current_state
            loss = None if state.is_bad else _valid_loss(run)
        if loss is None and state is RunState.DIVERGED:
            loss = DIVERGED_LOSS
        if loss is None and not state.is_bad:
            return False
        from optuna.trial import TrialState

        outcome = TrialState.COMPLETE if loss is not None else TrialState.FAIL
        # Another call that shares the output may have told it already.
        self.study.tell(number, loss, state=outcome, skip_if_finished=True)
        return True

    def best(self) -> tuple[dict[str, Any], Tuned] | None:
        """The settings of the lowest loss on valid; None if no trial came to one."""
        trials = self.study.get_trials(deepcopy=False)
        losses = [(trial.value, trial.number) for trial in trials if trial.value is not None]
        loss, number = min(losses, default=(DIVERGED_LOSS, 0))
        if loss >= DIVERGED_LOSS:
            return None
        ranges = {key: str(each) for key, each in self.search.items()}
        ended = sum(trial.state.is_finished() for trial in trials)
        tuned = Tuned(ranges=ranges, trials=ended, seed=self.seed, valid_loss=loss)
        return self._settings(trials[number].params), tuned

    def _own_values(self) -> dict[str, Any]:
        """What the row has without tuning, as far as it lies in the ranges."""
        settings = decisive_settings(self.line.configs[0])
        return {
            key: settings[key] for key, each in self.search.items() if each.has(settings.get(key))
        }

    def _settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a trial as the configuration has them."""
        return {key: _rounded(params[key], each) for key, each in self.search.items()}


DAMAGE = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""Exceptions of Optuna on a journal with lines that are not its own."""


def open_studies(experiment: Experiment, directory: ExperimentDirectory) -> list[RowStudy]:
    """The study of each line; equal lines have one.

    A study belongs to what is searched and to all other settings of the row, so that a change of
    either begins anew.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    directory.path.mkdir(parents=True, exist_ok=True)
    ranges = {key: str(each) for key, each in experiment.search.items()}
    journal = directory.path / "tuning.jsonl"
    _cut_torn_line(journal)
    try:
        _check_lines(journal)
        storage = JournalStorage(JournalFileBackend(str(journal)))
    except (*DAMAGE, optuna.exceptions.OptunaError) as error:
        remedy = "delete it: trainings that are there are found again"
        raise UserError(f"{journal}: not a journal of Optuna ({error})", remedy) from error
    studies = []
    for line in experiment.lines:
        settings = decisive_settings(line.configs[0])
        fixed = {key: value for key, value in settings.items() if key not in ranges}
        name = fingerprint([fixed, ranges], 16)
        study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
        studies.append(RowStudy(experiment, line, study, line.configs[0].seed))
    return studies


def _check_lines(journal: Path) -> None:
    """Raises ValueError for a line that is not JSON, which Optuna sees only when more follow."""
    if not journal.is_file():
        return
    for number, line in enumerate(journal.read_bytes().splitlines(), 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {line[:40]!r} found") from error


def _cut_torn_line(journal: Path) -> None:
    """Takes away the end of a line that a killed call did not write whole."""
    if journal.is_file() and (content := journal.read_bytes()) and not content.endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)


def run_trials(
    studies: Sequence[RowStudy],
    trials: int,
    at_once: int,
    directory: ExperimentDirectory,
    train: Callable[[list[PlannedRun]], None],
) -> bool:
    """Asks for trials and trains them, until each row has as many as wanted.

    Args:
        trials: of each row, those of earlier calls included.
        at_once: runs that are trained at the same time.
        train: trains what is missing of some runs, and returns when all have ended.

    Returns:
        Whether all trials have ended; False if one was interrupted, and the next call goes on.
    """
    distinct = list({each.study.study_name: each for each in studies}.values())
    while True:
        for each in distinct:
            more = min(max(1, at_once // len(distinct)), trials - each.trials)
            for _ in range(more if not list(each.begun()) else 0):
                each.ask()
        begun = [(each, *trial) for each in distinct for trial in each.begun()]
        if not begun:
            return True
        runs = [_planned(each, settings, directory) for each, _, settings in begun]
        train(list({run.id: run for run in runs if run is not None}.values()))
        told = [each.tell(number, run) for (each, number, _), run in zip(begun, runs, strict=True)]
        if not all(told):
            return False


def winners(
    experiment: Experiment, studies: Sequence[RowStudy]
) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment with each row's best settings, and the labels of rows that have none."""
    best = {each.line.label: found for each in studies if (found := each.best())}
    missing = tuple(line.label for line in experiment.lines if line.label not in best)
    chosen = {label: settings for label, (settings, _) in best.items()}
    tuned = {label: record for label, (_, record) in best.items()}
    return experiment.with_settings(chosen, tuned), missing


def _planned(
    study: RowStudy, settings: Mapping[str, Any], directory: ExperimentDirectory
) -> PlannedRun | None:
    with contextlib.suppress(UserError):  # a combination of tuned values that cannot be
        return study.planned(settings, directory)
    return None


def _valid_loss(run: PlannedRun) -> float | None:
    training = run.directory.read_summary().training
    return training.best_valid_loss if training else None


def _distribution(found: SearchRange) -> "BaseDistribution":
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if found.choices:
        return CategoricalDistribution(found.choices)
    if found.is_whole:
        return IntDistribution(int(found.low), int(found.high), log=found.log)
    return FloatDistribution(found.low, found.high, log=found.log)


def _rounded(value: Any, found: SearchRange) -> Any:
    if found.choices or isinstance(value, int):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), found.low), found.high)

"""The plan of an experiment: its distinct runs, and what each lacks on disk."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from txlbench.config.base import Part
from txlbench.config.catalogue import CORPORA
from txlbench.config.grid import Experiment, load_experiment
from txlbench.config.measurements import Measurement, all_measurements
from txlbench.config.run_config import CorpusConfig, EvaluateConfig, RunConfig
from txlbench.errors import UserError
from txlbench.records.experiment_directory import RESULTS, ExperimentDirectory, find_experiments
from txlbench.records.run_directory import RunDirectory
from txlbench.runs.executors.executor import Launch

if TYPE_CHECKING:
    from txlbench.data.corpus import Corpus
    from txlbench.reporting.figures.style import Look


@dataclass(frozen=True)
class Request:
    """What the user asked `ablate` for.

    Attributes:
        spec: the experiment file.
        out: the experiment's directory; default results/<name>.
        overrides: `key=value` settings over the base configuration.
        only: patterns of labels or run ids; none for all.
        jobs: runs at once; None for as many as fit the device.
        threads: CPU threads of each run; None for its share of the cores.
        keep_going: go on although the first two runs failed alike.
        retry: run failed and diverged runs again.
        tune_trials: trainings by which each row's settings are tuned first; None for none.
        launch: where runs go, and what each takes.
        look: of the figures; their usual one without it.
        command: what was typed, for tables and figures.
    """

    spec: Path
    out: Path | None = None
    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    jobs: int | None = None
    device: str = "auto"
    threads: int | None = None
    keep_going: bool = False
    retry: bool = False
    tune_trials: int | None = None
    launch: Launch = field(default_factory=Launch)
    look: "Look | None" = None
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))


def with_evaluation(config: RunConfig, evaluate: EvaluateConfig) -> RunConfig:
    """The configuration of the same run, measured as `evaluate` says."""
    return config.model_copy(update={"evaluate": evaluate})


def missing(
    run: RunDirectory, config: RunConfig, evaluations: Sequence[EvaluateConfig]
) -> list[Measurement]:
    """The measurements asked for that the run has no record of, each once."""
    wanted = {
        measurement.key: measurement
        for evaluate in evaluations
        for measurement in all_measurements(with_evaluation(config, evaluate))
    }
    return [each for each in wanted.values() if run.read_evaluation(each) is None]


SOME_TOKENS = 64
"""A vocabulary for trying a model out while the text is not prepared."""


class Need(StrEnum):
    """What a run lacks."""

    NOTHING = "nothing"
    EVALUATION = "evaluation"
    TRAINING = "training"
    RETRY = "retry"  # failed or diverged before; done again only when asked
    REPAIR = "repair"  # a file of it cannot be read


@dataclass(frozen=True)
class PlannedRun:
    """One run, the labels that share it, and what it needs.

    Attributes:
        paper: the paper's numbers of its first label.
        evaluations: every way in which a label measures it, each once.
    """

    id: str
    labels: tuple[str, ...]
    config: RunConfig
    paper: Mapping[str, float | str]
    evaluations: tuple[EvaluateConfig, ...]
    directory: RunDirectory

    @property
    def title(self) -> str:
        """How people see it: its label, with the seed."""
        return f"{self.labels[0]} (seed {self.config.seed})"

    def need(self) -> Need:
        """What is missing on disk, as it is now."""
        try:
            return self._need()
        except UserError:
            return Need.REPAIR

    def _need(self) -> Need:
        if self.directory.state.is_bad and not self._was_killed():
            return Need.RETRY
        summary = self.directory.read_summary()
        if summary.training is None:
            return Need.TRAINING
        complete = all(summary.outcome(each) for each in self.evaluations)
        if complete and not self.directory.has_weights:  # published, without single evaluations
            return Need.NOTHING
        if complete and not missing(self.directory, self.config, self.evaluations):
            return Need.NOTHING
        return Need.EVALUATION

    def _was_killed(self) -> bool:
        """Whether a signal ended the run from outside, after which it just goes on."""
        error = self.directory.read_status().error
        return error is not None and error.where == "process" and error.type.startswith("SIG")


def open_experiment(request: Request) -> tuple[Experiment, ExperimentDirectory, list[PlannedRun]]:
    """The experiment, its directory and its plan; touches no file."""
    partial = bool(request.only) and request.tune_trials is None  # which writes every row anew
    experiment = load_experiment(request.spec, request.overrides, partial)
    directory = ExperimentDirectory(request.out or RESULTS / experiment.name)
    plan = make_plan(chosen_rows(experiment, request), directory)
    for run in plan:
        if run.config.model.kind == "hf":
            _check_architecture(request.spec, run)
    return experiment, directory, plan


def chosen_rows(experiment: Experiment, request: Request) -> Experiment:
    """The rows that `--only` takes; all without it."""
    return experiment.only(request.only) if request.only else experiment


def _check_architecture(spec: Path, run: PlannedRun) -> None:
    """Refuses an architecture that transformers has not, or that cannot be trained as asked.

    A large model is tried where it is trained.
    """
    from txlbench.models.architectures.probe import try_out  # loads torch and transformers

    try:
        try_out(run.config, vocabulary_size(run) or SOME_TOKENS)
    except UserError as error:
        raise UserError(f"{spec}: row '{run.labels[0]}': {error.problem}", error.remedy) from error


def make_plan(experiment: Experiment, directory: ExperimentDirectory) -> list[PlannedRun]:
    """The distinct runs of an experiment in the order of its lines, seeds innermost."""
    labels: dict[str, list[str]] = {}
    evaluations: dict[str, list[EvaluateConfig]] = {}
    first: dict[str, tuple[RunConfig, Mapping[str, float | str]]] = {}
    for line in experiment.lines:
        for identity, config in zip(line.run_ids, line.configs, strict=True):
            first.setdefault(identity, (config, line.paper))
            labels.setdefault(identity, []).append(line.label)
            asked = evaluations.setdefault(identity, [])
            if config.evaluate not in asked:
                asked.append(config.evaluate)
    return [
        PlannedRun(
            identity,
            tuple(labels[identity]),
            config,
            paper,
            tuple(evaluations[identity]),
            directory.run(identity),
        )
        for identity, (config, paper) in first.items()
    ]


def trained_elsewhere(run: PlannedRun) -> RunDirectory | None:
    """The same run, trained and whole, in another experiment under results/; None if none is.

    Where a folder was chosen with --out nothing is looked for: there a run can be trained again.
    """
    own = run.directory.path
    if own.exists() or own.parent.parent.parent != RESULTS:
        return None
    others = [replace(run, directory=each.run(run.id)) for each in find_experiments(RESULTS)]
    for need in (Need.NOTHING, Need.EVALUATION):
        for other in others:
            directory = other.directory
            if other.need() is need and directory.is_usable and directory.has_weights:
                return directory
    return None


def vocabulary_size(run: PlannedRun) -> int | None:
    """From the catalogue, the level, an earlier attempt or the prepared text; None if unknown."""
    corpus = run.config.corpus
    if corpus.path is None and CORPORA[corpus.name].vocabulary_size is not None:
        return CORPORA[corpus.name].vocabulary_size
    if corpus.resolved_level == "byte":
        return 256
    try:
        return run.directory.read_facts().corpus.vocabulary_size or _prepared_size(corpus)
    except UserError:  # said elsewhere
        return None


def predictions(run: PlannedRun, split: Part) -> int | None:
    """Predictions of a split, from the catalogue or the prepared text; None if unknown."""
    corpus = run.config.corpus
    known = CORPORA[corpus.name].tokens.get(split) if corpus.path is None else None
    try:
        known = known or _prepared(corpus, lambda prepared: prepared.count(split))
    except UserError:  # said elsewhere
        return None
    return None if known is None else max(1, known - 1)


def as_met(run: PlannedRun) -> RunConfig:
    """The run's configuration, segments and memory no longer than a stream of the text is."""
    train, count = run.config.train, predictions(run, "train")
    if count is None:
        return run.config
    longest = max(1, count // train.batch_size)
    cut = {"tgt_len": min(train.tgt_len, longest), "mem_len": min(train.memory, longest)}
    return run.config.model_copy(update={"train": train.model_copy(update=cut)})


def _prepared_size(corpus: CorpusConfig) -> int | None:
    return _prepared(corpus, lambda prepared: len(prepared.vocabulary))


def _prepared(corpus: CorpusConfig, fact: Callable[["Corpus"], int]) -> int | None:
    from txlbench.data.prepare import find_prepared  # only for a text of one's own: loads numpy

    prepared = find_prepared(corpus)
    return None if prepared is None else fact(prepared)

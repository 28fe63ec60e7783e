"""The plan of an experiment: its distinct runs, and what each lacks on disk.

`--dry-run` prints it with sizes and costs.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from txlbench.config.catalogue import CORPORA
from txlbench.config.counting import checkpoint_bytes, parameters, train_flops, train_targets
from txlbench.config.grid import Experiment, load_experiment
from txlbench.config.measurements import Measurement, all_measurements
from txlbench.config.run_config import CorpusConfig, EvaluateConfig, RunConfig
from txlbench.errors import UserError
from txlbench.records.experiment_directory import RESULTS, ExperimentDirectory, find_experiments
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.executors.executor import Launch


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
        launch: where runs go, and what each takes.
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
    launch: Launch = field(default_factory=Launch)
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


SCHEMA = "txlbench.plan/1"
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
        if complete and not missing(self.directory, self.config, self.evaluations):
            return Need.NOTHING
        return Need.EVALUATION

    def _was_killed(self) -> bool:
        """Whether a signal ended the run from outside, after which it just goes on."""
        error = self.directory.read_status().error
        return error is not None and error.where == "process" and error.type.startswith("SIG")


def open_experiment(request: Request) -> tuple[Experiment, ExperimentDirectory, list[PlannedRun]]:
    """The experiment, its directory and its plan; touches no file."""
    experiment = load_experiment(request.spec, request.overrides)
    directory = ExperimentDirectory(request.out or RESULTS / experiment.name)
    chosen = experiment.only(request.only) if request.only else experiment
    plan = make_plan(chosen, directory)
    for run in plan:
        if run.config.model.kind == "hf":
            _check_architecture(request.spec, run)
    return experiment, directory, plan


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
            if other.need() is need and other.directory.is_usable:
                return other.directory
    return None


class PlanEntry(BaseModel):
    """One run of a plan; what is unknown is None, with the reason in `unknown`.

    Attributes:
        stale: why the run that is on disk does not count; empty if it does, or there is none.
        copied_from: where the run is trained already, in another experiment; else empty.
        train_tokens: targets that training predicts.
        train_flops: floating-point operations of the whole training.
        estimated_seconds: training time at the speed of the slowest trained run of the experiment.
        estimated_bytes: disk space of its checkpoints.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    label: str
    labels: tuple[str, ...]
    seed: int
    state: RunState
    need: Need
    stale: str
    copied_from: str
    parameters: int | None
    train_tokens: int
    train_flops: int | None
    estimated_seconds: float | None
    estimated_bytes: int | None
    unknown: dict[str, str]


class PlanRecord(BaseModel):
    """What `--dry-run --format json` prints."""

    model_config = ConfigDict(frozen=True)

    schema_id: str = Field(SCHEMA, serialization_alias="schema")
    runs: tuple[PlanEntry, ...]


def describe_plan(
    runs: Sequence[PlannedRun], stale: Mapping[str, str] = MappingProxyType({})
) -> PlanRecord:
    """The plan with sizes and costs.

    Args:
        stale: why a run that is there does not count, by id.
    """
    speeds = [speed for run in runs if (speed := _flops_a_second(run)) is not None]
    speed = min(speeds, default=None)
    return PlanRecord(runs=tuple(_describe(run, speed, stale.get(run.id, "")) for run in runs))


def _describe(run: PlannedRun, speed: float | None, stale: str) -> PlanEntry:
    twin = trained_elsewhere(run)
    size = vocabulary_size(run)
    flops = train_flops(run.config, size) if size else None
    seconds = flops / speed if flops and speed else None
    no_size = "the vocabulary is known once the corpus is prepared"
    unknown = {}
    if not size:
        unknown = dict.fromkeys(("parameters", "train_flops", "estimated_bytes"), no_size)
    if not seconds:
        no_speed = "no run of this experiment is trained yet"
        unknown["estimated_seconds"] = no_speed if size else no_size
    return PlanEntry(
        id=run.id,
        label=run.labels[0],
        labels=run.labels,
        seed=run.config.seed,
        state=run.directory.current_state,
        need=Need.TRAINING if stale else replace(run, directory=twin or run.directory).need(),
        stale=stale,
        copied_from=str(twin.path) if twin else "",
        parameters=parameters(run.config.model, size) if size else None,
        train_tokens=train_targets(run.config),
        train_flops=flops,
        estimated_seconds=seconds,
        estimated_bytes=checkpoint_bytes(run.config, size) if size else None,
        unknown=unknown,
    )


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


def _prepared_size(corpus: CorpusConfig) -> int | None:
    from txlbench.data.prepare import find_prepared  # only for a text of one's own: loads numpy

    prepared = find_prepared(corpus)
    return None if prepared is None else len(prepared.vocabulary)


def _flops_a_second(run: PlannedRun) -> float | None:
    """Of a trained run, as a guide for the others."""
    size = vocabulary_size(run)
    if size is None or run.need() not in (Need.NOTHING, Need.EVALUATION):
        return None
    training = run.directory.read_summary().training
    seconds = training and training.seconds
    return train_flops(run.config, size) / max(seconds, 1e-9) if seconds else None

"""An experiment's results: every line of its table with the records of its runs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from txlbench.config.base import displayed, is_exploded
from txlbench.config.grid import Experiment, Line
from txlbench.config.run_config import RunConfig
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Facts, Outcome, RunState, TrainingSummary

NOT_RUN = "not run"
NOT_EVALUATED = "not evaluated"
UNIGRAM_MARGIN = 0.02
"""A loss within this share of the unigram model's (or above it) shows that nothing was learned."""

LONGEST_ERROR = 160


@dataclass(frozen=True)
class RunResult:
    """A line of the table with one seed.

    Attributes:
        state: a run state, "not run", or "not evaluated" under these evaluation settings.
        error: what ended a failed or diverged run, or is wrong with the files of a damaged one, in
            one line; else empty.
        outcome: None without numbers.
        exponent: the L²M exponent, where `context --dense` measured it.
    """

    line: Line
    config: RunConfig
    directory: RunDirectory
    state: str
    error: str
    facts: Facts
    training: TrainingSummary
    outcome: Outcome | None
    exponent: float | None = None

    @property
    def label(self) -> str:
        return self.line.label

    @property
    def unit(self) -> str:
        return self.config.corpus.unit

    @property
    def is_damaged(self) -> bool:
        """Whether some file of the run cannot be read; then nothing of it is shown."""
        return self.state == RunState.DAMAGED

    def displayed(self, nats: float) -> float:
        return displayed(nats, self.unit)

    @property
    def unigram_loss(self) -> float | None:
        """Loss (nats) of a unigram model on the reported split, None if not recorded."""
        return self.facts.corpus.unigram_loss.get(self.config.evaluate.split)

    @property
    def did_train(self) -> bool:
        """Whether the model beats a unigram model clearly; True where that cannot be told."""
        if self.outcome is None or self.unigram_loss is None:
            return True
        return self.outcome.best.loss < (1 - UNIGRAM_MARGIN) * self.unigram_loss

    def is_exploded(self, nats: float) -> bool:
        """Whether a loss is so high that the training diverged; False where that cannot be told."""
        size = self.facts.corpus.vocabulary_size
        return size is not None and is_exploded(nats, size)

    @property
    def trained_how(self) -> str:
        """Precision, device and threads of its training: `fp32 on Xeon Gold, 1 thread`."""
        facts = self.facts
        device, threads = facts.device_name or facts.device or "an unknown device", facts.threads
        count = "" if threads is None else f", {threads} thread{'s' * (threads != 1)}"
        return f"{facts.precision or 'unknown precision'} on {device}{count}"

    @property
    def unk_share(self) -> float | None:
        """The share of `<unk>` among the tokens of the reported split, None if not recorded."""
        corpus, split = self.facts.corpus, self.config.evaluate.split
        counts, tokens = corpus.unk.get(split), corpus.tokens.get(split)
        return None if counts is None or not tokens else counts / tokens

    @property
    def is_incoherent(self) -> bool:
        """Absolute positions with memory: two tokens share one position (paper, section 3.3)."""
        return self.config.train.recurrence and not self.config.model.has_coherent_memory

    @property
    def untrained_positions(self) -> int:
        """Positions at the start of each segment that training never takes as targets.

        Half loss leaves them out, unless they are trained on as an auxiliary loss.
        """
        train = self.config.train
        return 0 if train.aux_positions else train.tgt_len - train.stride

    def is_extrapolated(self, length: int | None) -> bool:
        """Whether absolute positions beyond those trained are needed at attention `length`."""
        return (
            length is not None
            and not self.config.model.has_coherent_memory
            and not self.config.train.recurrence
            and length > self.config.train.tgt_len
        )


@dataclass(frozen=True)
class Results:
    """An experiment with the records of all its runs, line by line and seed by seed.

    Attributes:
        commands: what was typed to train and measure the runs.
    """

    experiment: Experiment
    runs: tuple[RunResult, ...]
    commands: tuple[str, ...] = ()

    def by_line(self) -> list[tuple[Line, tuple[RunResult, ...]]]:
        """The lines in the experiment's order, each with its runs."""
        return [
            (line, tuple(run for run in self.runs if run.line is line))
            for line in self.experiment.lines
        ]

    def only(self, labels: Collection[str]) -> "Results":
        """The lines with these labels."""
        lines = tuple(line for line in self.experiment.lines if line.label in labels)
        runs = tuple(run for run in self.runs if run.label in labels)
        return Results(replace(self.experiment, lines=lines), runs, self.commands)

    def by_label_in(self, unit: str) -> Iterator[tuple[str, tuple[RunResult, ...]]]:
        """(label, runs) of the lines whose losses are shown in `unit`."""
        for line, runs in self.by_line():
            if runs[0].unit == unit:
                yield line.label, runs

    def comparable_in(self, unit: str) -> Iterator[tuple[str, tuple[RunResult, ...]]]:
        """As `by_label_in`, the lines only that have results: some run measured, and trained.

        Where nothing trained at all, as in a smoke test, everything measured is compared.
        """
        lines = [
            (label, [run for run in runs if run.outcome], runs)
            for label, runs in self.by_label_in(unit)
        ]
        some_did = any(run.did_train for _, scored, _ in lines for run in scored)
        for label, scored, runs in lines:
            if any(run.did_train or not some_did for run in scored):
                yield label, runs

    def left_out(self, unit: str) -> Iterator[str]:
        """The lines that `comparable_in` leaves out, each with the reason."""
        shown = dict(self.comparable_in(unit))
        for line, runs in self.by_line():
            if line.label not in shown:
                yield f"{line.label} ({_reason(runs, unit)})"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(line.label for line in self.experiment.lines)


def read_results(directory: ExperimentDirectory) -> Results:
    """Reads everything that the runs in `directory` have left so far.

    A run with a file that cannot be read is `damaged` and has no numbers; the others do.

    Raises:
        UserError: if the experiment's own file is not what it should be.
    """
    experiment = directory.read_spec()
    runs = tuple(
        _read_run(line, config, directory.run(identity))
        for line in experiment.lines
        for identity, config in zip(line.run_ids, line.configs, strict=True)
    )
    return Results(experiment, runs, tuple(directory.commands()))


def _reason(runs: tuple[RunResult, ...], unit: str) -> str:
    """Why a line has nothing to be compared in `unit`."""
    if runs[0].unit != unit:
        return f"in {runs[0].unit}"
    if any(run.outcome for run in runs):
        return "did not train"
    return "/".join(dict.fromkeys(run.state for run in runs))


def _read_run(line: Line, config: RunConfig, run: RunDirectory) -> RunResult:
    if damage := run.damage():
        empty = Facts(), TrainingSummary()
        return RunResult(line, config, run, str(RunState.DAMAGED), damage, *empty, None)
    state, summary = run.current_state, run.read_summary()
    outcome = summary.outcome(config.evaluate)
    result = RunResult(
        line=line,
        config=config,
        directory=run,
        state=_shown_state(state, outcome),
        error=_error_line(run) if state.is_bad else "",
        facts=run.read_facts(),
        training=summary.training or TrainingSummary(),
        outcome=outcome,
        exponent=run.read_exponent().value,
    )
    if outcome is not None and result.is_exploded(outcome.best.loss):
        what = f"the loss is {outcome.best.loss:.4g} nats"
        return replace(result, state=str(RunState.DIVERGED), error=what, outcome=None)
    return result


def _shown_state(state: RunState, outcome: Outcome | None) -> str:
    if state is RunState.QUEUED:
        return NOT_RUN
    if state is RunState.FINISHED and outcome is None:
        return NOT_EVALUATED
    return str(state)


def _error_line(run: RunDirectory) -> str:
    """The recorded error, else the last line that the run wrote."""
    error = run.read_status().error
    if error is None:
        text = _last_line(run.error_file) or _last_line(run.log_file)
    else:
        place = error.where.rpartition("/")[2]
        text = f"{error} ({place})" if place else str(error)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 3] + "..."


def _last_line(path: Path) -> str:
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")

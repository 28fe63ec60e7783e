"""The rows of the result table: means over seeds and their t-intervals."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from txlbench.config.counting import kept_numbers
from txlbench.config.grid import Line
from txlbench.config.kinds import FLOAT
from txlbench.config.measurements import distance_met
from txlbench.records.schema import Outcome, RunState
from txlbench.reporting.experiment_results import Results, RunResult

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: in the unit of the values.
        half_width: of the 95 % t-interval; None for a single value, which has no interval.
        n: number of seeds.
    """

    mean: float
    half_width: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and interval of `values`, None if there are none."""
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    from scipy import special  # of its modules the one that loads fast

    quantile = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    spread = math.hypot(*(value - mean for value in values))  # squares might overflow
    return Estimate(mean, quantile * spread / math.sqrt(n * (n - 1)), n)


DID_NOT_TRAIN = "did not train: no better than a unigram model"


Loss = Callable[[Outcome], float]


def init_loss(outcome: Outcome) -> float:
    return outcome.init.loss


def best_loss(outcome: Outcome) -> float:
    return outcome.best.loss


LOSSES: Mapping[str, Loss] = {"init": init_loss, "best": best_loss}
"""The losses of the table, in nats."""


@dataclass(frozen=True)
class TableRow:
    """One line of the table.

    Attributes:
        runs: one a seed, those without numbers included.
    """

    line: Line
    runs: tuple[RunResult, ...]

    @property
    def label(self) -> str:
        return self.line.label

    @property
    def first(self) -> RunResult:
        """Any run: all have the same configuration but for the seed."""
        return self.runs[0]

    @property
    def unit(self) -> str:
        return self.first.unit

    @property
    def scored(self) -> tuple[RunResult, ...]:
        """The runs that have numbers."""
        return tuple(run for run in self.runs if run.outcome is not None)

    @property
    def counted(self) -> tuple[RunResult, ...]:
        """The runs that means are taken of: those that trained, or all that have numbers."""
        return tuple(run for run in self.scored if run.did_train) or self.scored

    @property
    def outcomes(self) -> tuple[tuple[RunResult, Outcome], ...]:
        """The runs that means are taken of, each with its numbers."""
        return tuple((run, run.outcome) for run in self.counted if run.outcome is not None)

    @property
    def did_train(self) -> bool:
        """False where every run that has numbers stayed at the unigram level."""
        return not self.scored or any(run.did_train for run in self.scored)

    def mean(self, loss: Loss) -> Estimate | None:
        """Over seeds, in the unit that is displayed; None without numbers."""
        return estimate(list(self.values(loss).values()))

    @property
    def attention_lengths(self) -> tuple[int, ...]:
        """The length of each seed that has one; a mean of lengths would say nothing."""
        lengths = (found.attention_length for _, found in self.outcomes)
        return tuple(length for length in lengths if length is not None)

    def values(self, loss: Loss) -> dict[int, float]:
        """Seed -> a loss of its run as displayed: means are taken of what the table shows."""
        return {run.config.seed: run.displayed(loss(found)) for run, found in self.outcomes}

    @property
    def bytes_kept(self) -> int | None:
        """What a stream carries from segment to segment in training, at 4 bytes a number.

        None where only transformers knows.
        """
        config = self.first.config
        return None if config.model.kind == "hf" else FLOAT * kept_numbers(config)

    @property
    def memory(self) -> str:
        """The same in words: its kind, and the states of each layer."""
        model, train, size = self.first.config.model, self.first.config.train, self.bytes_kept
        if not train.recurrence:
            return "none"
        kept = "state" if model.is_recurrent else f"{model.memory} {train.memory}"
        return kept if size is None else f"{kept}, {size / 2**10:,.4g} KiB"

    @property
    def distance_met(self) -> int | None:
        """The largest distance met in training at least half as often as distance 1."""
        return distance_met(self.first.config)

    @property
    def exponent(self) -> Estimate | None:
        """The L²M exponent over the seeds of which it was measured; None without any."""
        return estimate([run.exponent for run in self.counted if run.exponent is not None])

    @property
    def targets(self) -> int | None:
        """Targets trained on by each run."""
        counts = [run.training.targets_trained for run in self.scored]
        return next((count for count in counts if count is not None), None)

    @property
    def parameters(self) -> int | None:
        counts = [run.facts.parameters for run in self.runs]
        return next((count for count in counts if count is not None), None)

    @property
    def state(self) -> str:
        """What became of the runs: one word if the same of all, else counted."""
        states = [run.state if run.did_train else "did not train" for run in self.runs]
        if len(set(states)) == 1:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    @property
    def rank(self) -> int:
        """Where the row stands: results first, then what has none, failures last."""
        if self.scored:
            return 0 if self.did_train else 1
        bad = (RunState.FAILED, RunState.DIVERGED, RunState.DAMAGED)
        return 3 if any(run.state in bad for run in self.runs) else 2


def build_rows(results: Results) -> list[TableRow]:
    """The table's rows: in the experiment's order, those without results after the others."""
    return sorted(itertools.starmap(TableRow, results.by_line()), key=lambda row: row.rank)


def memories_differ(rows: Sequence[TableRow]) -> bool:
    """Whether rows with memory keep different kinds or amounts of it."""
    return len({row.memory for row in rows if row.first.config.train.recurrence}) > 1


def units(rows: Sequence[TableRow]) -> list[str]:
    """The units that occur, each of which gets columns of its own."""
    return list(dict.fromkeys(row.unit for row in rows))

"""Where a table or figure comes from: its runs, the commit, the command, how numbers were got."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from txlbench.config.measurements import attention_lengths
from txlbench.reporting.outcome import Evaluation
from txlbench.reporting.results import Results
from txlbench.reporting.rows import Row, best_loss


@dataclass(frozen=True)
class Provenance:
    """Answers "which configuration made this?" on the thing itself.

    Attributes:
        run_ids: runs that exist, in the experiment's order.
        commits: of the code that trained them; "unknown" outside a checkout.
        command: what was typed to make the table or figure.
        trained_by: what was typed to train and measure the runs, where that is known.
    """

    experiment: str
    run_ids: tuple[str, ...]
    commits: tuple[str, ...]
    seeds: int
    command: str
    trained_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, results: Results, command: str) -> "Provenance":
        started = [run for run in results.runs if run.facts]
        return cls(
            experiment=results.experiment.name,
            run_ids=_distinct(run.directory.id for run in started),
            commits=_distinct(str(run.facts.get("commit") or "unknown") for run in started),
            seeds=len({run.config.seed for run in started}),
            command=command,
            trained_by=results.commands,
        )

    @property
    def commands(self) -> str:
        """Every command that led here, the one that made this last."""
        earlier = [each for each in self.trained_by if each != self.command]
        return "; then ".join([*earlier, self.command])

    @property
    def short(self) -> str:
        """One line for the foot of a figure."""
        commits = ", ".join(map(_abbreviated, self.commits)) or "unknown"
        count = f"{len(self.run_ids)} run{'s' * (len(self.run_ids) != 1)}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        return f"{self.experiment}  ·  commit {commits}  ·  {count}, {seeds}"

    @property
    def full(self) -> str:
        """One line that names everything."""
        commits = ", ".join(self.commits) or "unknown"
        runs = ", ".join(self.run_ids) or "none"
        return (
            f"Experiment {self.experiment}; runs {runs}; commit {commits}; command: {self.commands}"
        )


def _abbreviated(commit: str) -> str:
    """Nine digits, and the + of a checkout that was edited."""
    return f"{commit[:9]}{'+' * commit.endswith('+')}"


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def how_obtained(rows: Sequence[Row]) -> list[str]:
    """Sentences that say how the table's numbers came about; none without numbers."""
    scored = [run for row in rows for run in row.scored]
    inits = [run.outcome.init for run in scored if run.outcome]
    if not inits:
        return []
    corpora = _values(run.config.corpus.name for run in scored)
    lengths = _values(length for run in scored for length in attention_lengths(run.config))
    return [
        f"Obtained on {_values(each.measurement.split for each in inits)} of {corpora}: "
        f"{_range(each.tokens for each in inits)} tokens scored, "
        f"{_range(each.dropped for each in inits)} dropped, "
        f"batch {_values(each.measurement.batch_size for each in inits)}, "
        f"{_values(each.dtype for each in inits)}.",
        f"Init: the training regime, tgt_len {_settings(inits, 'tgt_len')}, "
        f"mem_len {_settings(inits, 'mem_len')}. Best: attention length chosen on valid among "
        f"{lengths}; attention length: the shortest within "
        f"{_values(run.config.evaluate.tolerance for run in scored)} nats of it.",
        *_intervals(rows),
    ]


def _intervals(rows: Sequence[Row]) -> list[str]:
    if all(len(row.scored) < 2 for row in rows):
        return ["One seed: no intervals, and differences are not tested."]
    text = "± is the 95 % t-interval of the mean over seeds"
    reference = next((row.reference for row in rows if row.difference(best_loss)), None)
    if reference is None:
        return [f"{text}."]
    return [
        f"{text}; Δ is the difference to '{reference.label}', paired by seed; not resolved: the "
        "interval covers 0."
    ]


def _settings(inits: Sequence[Evaluation], name: str) -> str:
    return " or ".join(map(str, sorted({getattr(each.measurement, name) for each in inits})))


def _values(values: Iterable[Any]) -> str:
    return ", ".join(f"{value}" for value in sorted(set(values)))


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    if len(found) == 1:
        return f"{found[0]:,}"
    return f"{found[0]:,} to {found[-1]:,}"

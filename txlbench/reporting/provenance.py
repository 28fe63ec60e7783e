"""Provenance of tables and figures, how their numbers were obtained, and notes on single rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from txlbench.config.measurements import attention_lengths
from txlbench.records.schema import EvaluationRecord, Facts
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.rows import DID_NOT_TRAIN, TableRow, memories_differ
from txlbench.reporting.table import enumerated


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
        started = [run for run in results.runs if run.facts != Facts()]
        return cls(
            experiment=results.experiment.name,
            run_ids=_distinct(run.directory.id for run in started),
            commits=_distinct(run.facts.commit or "unknown" for run in started),
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


def how_obtained(rows: Sequence[TableRow]) -> list[str]:
    """Sentences that say how the table's numbers came about; none without numbers."""
    scored = [run for row in rows for run in row.scored]
    inits = [run.outcome.init for run in scored if run.outcome]
    if not inits:
        return []
    corpora = _values(run.config.corpus.name for run in scored)
    lengths = _values(length for run in scored for length in attention_lengths(run.config))
    best = (
        f"Best: that or one of the attention lengths {lengths}, whichever is best on valid; "
        "attention length: the shortest within "
        f"{_values(run.config.evaluate.tolerance for run in scored)} nats of it."
        if lengths
        else "Best: that, as a recurrent state has no attention length to choose."
    )
    return [
        f"Obtained on {_values(each.measurement.split for each in inits)} of {corpora}: "
        f"{_range(each.tokens for each in inits)} tokens scored, "
        f"{_range(each.dropped for each in inits)} dropped, "
        f"batch {_values(each.measurement.batch_size for each in inits)}, "
        f"{_values(each.dtype for each in inits)}.",
        f"Init: the training regime, tgt_len {_settings(inits, 'tgt_len')}, "
        f"mem_len {_settings(inits, 'mem_len')}. {best}",
        *_tuned(rows),
        *_positions(rows),
        *_predictors(rows),
        *_unknown_words(rows),
        *_trained(rows),
    ]


def _tuned(rows: Sequence[TableRow]) -> list[str]:
    """What was tuned, on what and with how many trials, for the rows of which that is recorded."""
    tuned = {row.label: row.line.tuned for row in rows if row.line.tuned}
    said: dict[str, list[str]] = {}
    for label, each in tuned.items():
        ranges = "; ".join(f"{key}, {searched}" for key, searched in each.ranges.items())
        said.setdefault(f"seed {each.seed}, {each.trials} trials: {ranges}", []).append(label)
    left = [row.label for row in rows if not row.line.tuned]
    lines = [
        f"Tuned for the lowest loss on valid, each row by itself ({enumerated(labels)}), {text}."
        for text, labels in said.items()
    ]
    return [*lines, f"Not tuned: {enumerated(left)}."] if tuned and left else lines


def _predictors(rows: Sequence[TableRow]) -> list[str]:
    """What the columns are that were computed or taken from `context`, where they are shown."""
    lines = []
    if any(row.distance_met is not None for row in rows):
        lines.append(
            "Distance met: the largest distance between two tokens that training met at least half "
            "as often as distance 1; computed, not measured."
        )
    if memories_differ(rows):
        lines.append(
            "Memory: kind, states a layer and bytes that training carries on for each stream, all "
            "layers together, at 4 bytes a number."
        )
    if any(row.exponent for row in rows):
        lines.append("L²M exponent: growth of mutual information, by `context --dense`.")
    return lines


def _positions(rows: Sequence[TableRow]) -> list[str]:
    """Which positions of each segment init scores, where some row trains with half loss."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        for run, outcome in row.outcomes[:1]:
            regime = outcome.init.measurement
            first, trained = regime.tgt_len - regime.stride + 1, run.untrained_positions + 1
            text = f"{first} to {regime.tgt_len}"
            text += f", of which {trained} on are trained" if trained > first else ""
            labels.setdefault(text, []).append(row.label)
    if not any(run.untrained_positions for row in rows for run in row.scored):
        return []
    parts = [f"{text} ({enumerated(names)})" for text, names in labels.items()]
    return [f"Positions of each segment that init scores: {'; '.join(parts)}."]


def _unknown_words(rows: Sequence[TableRow]) -> list[str]:
    """The share of `<unk>` in the corpora that have it."""
    shares = {
        run.config.corpus.name: run.unk_share for row in rows for run in row.scored if run.unk_share
    }
    return [
        f"{share:.1%} of the tokens of {name} are <unk>; other vocabularies do not compare."
        for name, share in shares.items()
    ]


def _trained(rows: Sequence[TableRow]) -> list[str]:
    """In which precision, on what and with how many threads the models were trained."""
    how = list(dict.fromkeys(run.trained_how for row in rows for run in row.scored))
    others = "; rows and seeds that differ say so" if len(how) > 1 else ""
    return [f"Trained in {how[0]}{others}."]


def _settings(inits: Sequence[EvaluationRecord], name: str) -> str:
    return " or ".join(map(str, sorted({getattr(each.measurement, name) for each in inits})))


def _values(values: Iterable[Any]) -> str:
    return ", ".join(f"{value}" for value in sorted(set(values)))


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    if len(found) == 1:
        return f"{found[0]:,}"
    return f"{found[0]:,} to {found[-1]:,}"


INCOHERENT = "incoherent: absolute positions with memory"
TOKENS_MARGIN = 0.01
"""Split ends make counts of scored tokens differ a little; more than this share is said."""


def notes(row: TableRow, reference: TableRow | None) -> list[str]:
    """Everything to say of `row`; `reference` is the row others are compared with."""
    found = [row.line.note] if row.line.note else []
    if row.first.is_incoherent:
        found.append(INCOHERENT)
    found += _extrapolated(row)
    found += _untrained(row)
    if reference is not None and reference is not row:
        found += _evaluated_differently(row, reference)
    found += _trained_differently(row, reference)
    found += [f"{_seeds(row, [run])}{run.state}: {run.error}" for run in row.runs if run.error]
    return found


def comparison_reference(rows: Sequence[TableRow]) -> TableRow | None:
    """The first row with numbers: how it was evaluated is what the others are held against."""
    return next((row for row in rows if row.scored), None)


def _seeds(row: TableRow, runs: Sequence[RunResult]) -> str:
    """`seeds 1 and 3 `; nothing where that is the whole row."""
    if len(runs) == len(row.runs):
        return ""
    return f"seed{'s' * (len(runs) > 1)} {' and '.join(str(run.config.seed) for run in runs)} "


def _extrapolated(row: TableRow) -> list[str]:
    """Names the chosen lengths that need positions never trained."""
    best = ((run, found.best_length) for run, found in row.outcomes)
    lengths = sorted({length for run, length in best if length and run.is_extrapolated(length)})
    if not lengths:
        return []
    trained = row.first.config.train.tgt_len
    return [f"extrapolated: best at {_join(lengths)}, trained on positions up to {trained}"]


def _untrained(row: TableRow) -> list[str]:
    flagged = [run for run in row.scored if not run.did_train]
    if not flagged:
        return []
    if not row.did_train:
        return [DID_NOT_TRAIN]
    return [f"{_seeds(row, flagged)}{DID_NOT_TRAIN}; left out of means and intervals"]


def _trained_differently(row: TableRow, reference: TableRow | None) -> list[str]:
    """Names the seeds that were trained otherwise than the first run with numbers."""
    usual = reference.scored[0].trained_how if reference is not None else ""
    found: dict[str, list[RunResult]] = {}
    for run in row.scored:
        found.setdefault(run.trained_how, []).append(run)
    return [f"{_seeds(row, runs)}trained in {how}" for how, runs in found.items() if how != usual]


def _evaluated_differently(row: TableRow, reference: TableRow) -> list[str]:
    """Names every setting of the evaluation in which the rows differ."""
    if not row.scored:
        return []
    mine, theirs = _row_settings(row), _row_settings(reference)
    different = [
        f"{name} {mine[name]} (there {theirs[name]})"
        for name in mine
        if mine[name] != theirs[name] and not _is_close(name, mine[name], theirs[name])
    ]
    if not different:
        return []
    return [f"evaluated differently from '{reference.label}': {', '.join(different)}"]


def _told(name: str, value: object) -> object:
    """A setting of `evaluate` as notes name it."""
    if value is None and name == "sinks":
        return "as trained"
    if value is None:
        return "none" if name in ("clamp_len", "rope_scaling", "rope_factor") else "all"
    return value


def _row_settings(row: TableRow) -> dict[str, object]:
    """How the row's numbers were obtained, as far as rows should agree in it."""
    outcomes = [run.outcome for run in row.scored if run.outcome]
    corpora = (run.facts.corpus.checksum or "unknown" for run in row.scored)
    evaluate = row.first.config.evaluate.model_dump(mode="json")
    lengths = evaluate.pop("attention_lengths")
    return {
        "corpus": row.first.config.corpus.name,
        "checksum": _join(each[:12] for each in corpora),
        **{name: _told(name, value) for name, value in evaluate.items()},
        "attention lengths": _join(lengths),
        "tokens scored": max(outcome.init.tokens for outcome in outcomes),
        "dtype": _join(outcome.init.dtype for outcome in outcomes),
        "exact": any(outcome.init.measurement.exact for outcome in outcomes),
    }


def _is_close(name: str, one: object, other: object) -> bool:
    if not (name == "tokens scored" and isinstance(one, int) and isinstance(other, int)):
        return False
    return abs(one - other) <= TOKENS_MARGIN * max(one, other)


def _join(values: Iterable[object]) -> str:
    return "/".join(map(str, dict.fromkeys(values)))

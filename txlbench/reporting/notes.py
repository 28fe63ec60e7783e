"""What a reader must know of a row before comparing its numbers with another's."""

from collections.abc import Sequence
from typing import Any

from txlbench.reporting.results import RunResult
from txlbench.reporting.rows import DID_NOT_TRAIN, Row

INCOHERENT = "incoherent: absolute positions with memory"
TOKENS_MARGIN = 0.01
"""Split ends make counts of scored tokens differ a little; more than this share is said."""


def notes(row: Row, reference: Row | None) -> list[str]:
    """Everything to say of `row`; `reference` is the row others are compared with."""
    found = [row.line.note] if row.line.note else []
    if row.first.is_incoherent:
        found.append(INCOHERENT)
    found += _extrapolated(row)
    found += _untrained(row)
    if reference is not None and reference is not row:
        found += _evaluated_differently(row, reference)
    found += [f"{_seed(row, run)}{run.state}: {run.error}" for run in row.runs if run.error]
    return found


def comparison_reference(rows: Sequence[Row]) -> Row | None:
    """The first row with numbers: how it was evaluated is what the others are held against."""
    return next((row for row in rows if row.scored), None)


def _seed(row: Row, run: RunResult) -> str:
    return f"seed {run.config.seed} " if len(row.runs) > 1 else ""


def _extrapolated(row: Row) -> list[str]:
    """Names the chosen lengths that need positions never trained."""
    lengths = sorted(
        {
            length
            for run in row.scored
            if run.outcome
            and (length := run.outcome.best_length) is not None
            and run.is_extrapolated(length)
        }
    )
    if not lengths:
        return []
    trained = row.first.config.train.tgt_len
    return [f"extrapolated: best at {_join(lengths)}, trained on positions up to {trained}"]


def _untrained(row: Row) -> list[str]:
    flagged = [run for run in row.scored if not run.did_train]
    if not flagged:
        return []
    if not row.did_train:
        return [DID_NOT_TRAIN]
    return [f"seed {_join(run.config.seed for run in flagged)} {DID_NOT_TRAIN}"]


def _evaluated_differently(row: Row, reference: Row) -> list[str]:
    """Names every setting of the evaluation in which the rows differ."""
    if not row.scored:
        return []
    mine, theirs = _settings(row), _settings(reference)
    different = [
        f"{name} {mine[name]} (there {theirs[name]})"
        for name in mine
        if mine[name] != theirs[name] and not _is_close(name, mine[name], theirs[name])
    ]
    if not different:
        return []
    return [f"evaluated differently from '{reference.label}': {', '.join(different)}"]


def _settings(row: Row) -> dict[str, Any]:
    """How the row's numbers were obtained, as far as rows should agree in it."""
    outcomes = [run.outcome for run in row.scored if run.outcome]
    corpora = (run.facts.get("corpus", {}).get("checksum", "unknown") for run in row.scored)
    evaluate = row.first.config.evaluate.model_dump(mode="json")
    lengths = evaluate.pop("attention_lengths")
    return {
        "corpus": row.first.config.corpus.name,
        "checksum": _join(str(each)[:12] for each in corpora),
        **{name: "all" if value is None else value for name, value in evaluate.items()},
        "attention lengths": _join(lengths),
        "tokens scored": max(outcome.init.tokens for outcome in outcomes),
        "dtype": _join(outcome.init.dtype for outcome in outcomes),
        "exact": any(outcome.init.measurement.exact for outcome in outcomes),
    }


def _is_close(name: str, one: Any, other: Any) -> bool:
    return name == "tokens scored" and bool(abs(one - other) <= TOKENS_MARGIN * max(one, other))


def _join(values: Any) -> str:
    return "/".join(map(str, dict.fromkeys(values)))

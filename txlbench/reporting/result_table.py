"""The result table: for people in columns of text, for programs as numbers in full precision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from txlbench.config.base import shown
from txlbench.errors import UserError
from txlbench.reporting.compare import comparisons
from txlbench.reporting.comparison import Comparison, Pair, explained
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.provenance import Provenance, comparison_reference, how_obtained, notes
from txlbench.reporting.rows import LOSSES, Estimate, Loss, TableRow, build_rows, memories_differ
from txlbench.reporting.table import EMPTY, Column, Table, compact

NAMED = ("model.encoding", "train.recurrence", "train.loss")
"""Settings that have columns of their own."""

COUNTS = {int, type(None)}


@dataclass(frozen=True)
class TableChoice:
    """What a user may choose of the table for people.

    Attributes:
        columns: headers in the order wanted; all without any.
        digits: after the point of losses; the unit's usual ones if None.
    """

    columns: tuple[str, ...] = ()
    digits: int | None = None


def build_table(
    results: Results, provenance: Provenance, choice: TableChoice | None = None
) -> Table:
    """The table in its human form; columns that are empty in every row are left out.

    Raises:
        UserError: for a chosen column that it does not have.
    """
    choice = choice or TableChoice()
    rows = build_rows(results)
    reference, found = comparison_reference(rows), comparisons(results)
    columns = [
        *_configuration(rows),
        *(
            column
            for (_, measure), each in found.items()
            for column in _results(rows, each, LOSSES[measure], results.labels[0], choice.digits)
        ),
        _column("attention length", rows, _attention_lengths, True, 2),
        _column("distance met", rows, lambda row: _count(row.distance_met), True, 3),
        _column("L²M exponent", rows, lambda row: _exponent(row.exponent), True, 3),
        *_paper(rows),
        _column("state", rows, lambda row: row.state),
        _column("notes", rows, lambda row: "; ".join(notes(row, reference))),
    ]
    kept = [column for column in columns if not column.is_empty]
    return Table(
        tuple(_chosen(kept, choice.columns)),
        (
            *explained(found, results.labels[0]),
            *how_obtained(rows),
            *results.experiment.warnings,
        ),
        provenance.full,
        title=results.experiment.title,
    )


def _chosen(columns: Sequence[Column], headers: Sequence[str]) -> list[Column]:
    """The columns with these headers, after that of the row's name; all without any."""
    found = {column.header: column for column in columns}
    for header in headers:
        if header not in found:
            raise UserError(f"--columns {header}: no such column", f"columns: {', '.join(found)}")
    wanted = dict.fromkeys((columns[0].header, *(headers or found)))
    return [found[header] for header in wanted]


def _column(
    header: str,
    rows: Sequence[TableRow],
    cell: Callable[[TableRow], str],
    is_number: bool = False,
    rank: int = 0,
) -> Column:
    return Column(header, tuple(cell(row) for row in rows), is_number, rank)


def _configuration(rows: Sequence[TableRow]) -> list[Column]:
    return [
        _column("row", rows, lambda row: row.label),
        _column("recurrence", rows, lambda row: _yes_no(row.first.config.train.recurrence), rank=1),
        _column("encoding", rows, lambda row: row.first.config.model.name, rank=1),
        _column("loss", rows, lambda row: row.first.config.train.loss, rank=1),
        _column("targets trained", rows, lambda row: compact(row.targets), True, 3),
        _column("parameters", rows, lambda row: compact(row.parameters), True, 3),
        _column("memory", rows, lambda row: row.memory if memories_differ(rows) else EMPTY, rank=2),
        *_tuned(rows),
        _column("n", rows, lambda row: str(len(row.counted)), is_number=True),
    ]


def _tuned(rows: Sequence[TableRow]) -> list[Column]:
    """The values that tuning chose for each row, and by how many trials."""
    keys = dict.fromkeys(key for row in rows if row.line.tuned for key in row.line.tuned.ranges)

    def value(row: TableRow, key: str) -> str:
        is_tuned = row.line.tuned is not None and key in row.line.tuned.ranges
        return _as_given(flat_settings(row).get(key)) if is_tuned else EMPTY

    columns = [_column(key, rows, partial(value, key=key), True, 1) for key in keys]
    trials = [_count(row.line.tuned.trials if row.line.tuned else None) for row in rows]
    return [*columns, Column("trials", tuple(trials), is_number=True, rank=3)]


def _results(
    rows: Sequence[TableRow],
    compared: Comparison,
    loss: Loss,
    reference: str,
    digits: int | None,
) -> list[Column]:
    """A loss and its difference to the row `reference`; rows of another unit stay empty."""
    unit = compared.unit

    def number(mean: float, half_width: float | None, sign: bool = False) -> str:
        width = "" if half_width is None else f" ± {shown(half_width, unit, digits=digits)}"
        return shown(mean, unit, sign, digits) + width

    def mean(row: TableRow) -> str:
        """In brackets where the model did not train, which is no result."""
        found = row.mean(loss) if row.unit == unit else None
        if found is None:
            return EMPTY
        cell = number(found.mean, found.half_width)
        star = "*" * (row.label == compared.winner)
        return f"{star}{cell}" if row.did_train else f"({cell})"

    def difference(row: TableRow) -> str:
        pair = compared.pair(row.label, reference)
        if pair is None or pair.difference is None or pair.half_width is None:
            return EMPTY
        cell = number(_signed(pair, row.label), pair.half_width, sign=True)
        return cell if pair.verdict != "not resolved" else f"{cell} (not resolved)"

    name = f"{unit} {compared.measure}"
    return [
        _column(name, rows, mean, True),
        _column(f"Δ {name}", rows, difference, True, 2),
    ]


def _signed(pair: Pair, label: str) -> float:
    """The difference of the row `label` to the other one."""
    difference = pair.difference or 0.0
    return difference if pair.higher == label else -difference


def _attention_lengths(row: TableRow) -> str:
    """The lengths that seeds have, each once."""
    return ", ".join(map(str, sorted(set(row.attention_lengths))))


def _count(number: int | None) -> str:
    return EMPTY if number is None else f"{number:,}"


def _exponent(found: Estimate | None) -> str:
    """Mean over seeds, with its interval where there are several."""
    if found is None:
        return EMPTY
    return f"{found.mean:.2f}" + (f" ± {found.half_width:.2f}" if found.half_width else "")


def _paper(rows: Sequence[TableRow]) -> list[Column]:
    """The paper's numbers, in columns of their own and under the paper's own units."""
    names = dict.fromkeys(name for row in rows for name in row.line.paper)
    return [
        _column(
            f"paper: {name}",
            rows,
            lambda row, name=name: _as_given(row.line.paper.get(name, EMPTY)),  # type: ignore[misc]
            is_number=True,
            rank=4,
        )
        for name in names
    ]


def _as_given(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,.10g}" if is_number else str(value)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def table_frame(results: Results, provenance: Provenance) -> pd.DataFrame:
    """The result table with every number in full precision, and where it comes from."""
    rows, found = build_rows(results), comparisons(results)
    reference = comparison_reference(rows)
    lines = [
        {
            **_numbers(row, varied, found, results.labels[0]),
            "notes": "; ".join(notes(row, reference)),
            "commit": " ".join(provenance.commits),
            "command": provenance.commands,
        }
        for row, varied in zip(rows, _varied(rows), strict=True)
    ]
    frame = pd.DataFrame(lines)
    # Of pandas' integers Int64 alone has a missing value; others become floats beside one.
    kinds = {name: {type(line.get(str(name))) for line in lines} for name in frame}
    counts = [name for name, found in kinds.items() if int in found and found <= COUNTS]
    # Absurd settings of an experiment give sizes beyond 64 bits.
    fitting = [name for name in counts if all(each < 2**63 for each in frame[name].dropna())]
    return frame.astype(dict.fromkeys(fitting, "Int64"))


def _varied(rows: Sequence[TableRow]) -> list[dict[str, object]]:
    """Of each row, by dotted key, the settings as resolved that are not the same in every row."""
    settings = [flat_settings(row) for row in rows]
    keys = dict.fromkeys(key for each in settings for key in each if key not in NAMED)
    varied = [key for key in keys if len({str(each.get(key)) for each in settings}) > 1]
    return [{key: each.get(key) for key in varied} for each in settings]


def flat_settings(row: TableRow) -> dict[str, object]:
    """Dotted key -> value of all settings of a row as resolved, but the seed."""
    return _flat(row.first.config.model_dump(mode="json", exclude={"seed"}))


def _flat(section: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Dotted key -> value; the items of a list are divided by spaces."""
    flat: dict[str, object] = {}
    for key, value in section.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat


def _numbers(
    row: TableRow,
    varied: Mapping[str, object],
    found: Mapping[tuple[str, str], Comparison],
    reference: str,
) -> dict[str, object]:
    """One line of the CSV; columns of another unit are left empty.

    Args:
        varied: the row's settings that other rows have otherwise.
        reference: the row that differences are taken to.
    """
    first = row.first
    return {
        "row": row.label,
        **varied,
        "recurrence": first.config.train.recurrence,
        "encoding": first.config.model.name,
        "loss": first.config.train.loss,
        "targets_trained": row.targets,
        "parameters": row.parameters,
        "memory": row.first.config.model.memory if row.first.config.train.recurrence else "none",
        "states_kept": row.first.config.train.memory,
        "bytes_kept": row.bytes_kept,
        "tuning_trials": row.line.tuned and row.line.tuned.trials,
        "n": len(row.counted),
        **_estimates(row, found, reference),
        "attention_lengths": " ".join(map(str, row.attention_lengths)),
        "distance_met": row.distance_met,
        "l2m_exponent": row.exponent and row.exponent.mean,
        **{f"paper_{name}": value for name, value in row.line.paper.items()},
        "state": row.state,
        **_obtained(row),
        "seeds": " ".join(str(run.config.seed) for run in row.counted),
        "runs": " ".join(run.directory.id for run in row.runs),
    }


def _estimates(
    row: TableRow, compared: Mapping[tuple[str, str], Comparison], reference: str
) -> dict[str, object]:
    """Init and best with their intervals, and their differences to the row `reference`."""
    found: dict[str, object] = {}
    for name, loss in LOSSES.items():
        column, mean, comparison = f"{row.unit}_{name}", row.mean(loss), compared[row.unit, name]
        pair = comparison.pair(row.label, reference)
        known = pair is not None and pair.difference is not None
        found |= {
            column: mean and mean.mean,
            f"{column}_half_width": mean and mean.half_width,
            f"{column}_difference": _signed(pair, row.label) if pair and known else None,
            f"{column}_difference_half_width": pair and pair.half_width,
            f"{column}_difference_p_holm": pair and pair.p_holm,
            f"{column}_difference_resolved": pair.verdict == "resolved" if pair and known else None,
            f"{column}_beats_all": comparison.winner == row.label if mean else None,
        }
    return found


def _obtained(row: TableRow) -> dict[str, object]:
    """How the first scored run's numbers came about; notes say where others differ."""
    run = next(iter(row.scored), None)
    if run is None or run.outcome is None:
        return {}
    init = run.outcome.init
    settings = init.measurement.model_dump(mode="json")
    names = ("split", "regime", "tgt_len", "mem_len", "stride", "batch_size", "exact")
    return {
        **{name: settings[name] for name in names},
        "tokens_scored": init.tokens,
        "tokens_dropped": init.dropped,
        "dtype": init.dtype,
        "trained": "; ".join(dict.fromkeys(run.trained_how for run in row.scored)),
        "unk_share": run.unk_share,
    }

"""The page of an experiment: which rows differ and by how much, then everything that shows it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from txlbench.config.base import shown
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.reporting.compare import comparisons
from txlbench.reporting.comparison import Comparison, pair_table
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.pages.contrasts import setting_remarks
from txlbench.reporting.pages.page import Answer, Log, Page, PagePart, Picture, Remark, tables_of
from txlbench.reporting.paired import LEVEL
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.result_table import flat_settings
from txlbench.reporting.rows import LOSSES, Estimate, TableRow, best_loss, build_rows, units
from txlbench.reporting.table import EMPTY, Column, Table, compact, narrowed

UNITS = {"bpc": "bits per character", "bpb": "bits per byte", "ppl": "perplexity"}
LAST_LINES = 20
LONGEST_LINE = 400
"""Characters of a line of a log that are shown."""
MOST_NAMED = 6
MOST_DOUBTS = 4
PAPER_LOSSES = ("ppl_best", "ppl", "bpc", "ppl_init")
"""Names of the paper's numbers that are losses, in the order in which they are looked for."""


def experiment_page(
    results: Results,
    provenance: Provenance,
    table: Table,
    pictures: Sequence[Picture],
    findings: Sequence[PagePart] = (),
) -> Page:
    """What is shown of an experiment as one page.

    Args:
        table: of results, with all columns.
        pictures: its figures; the first one stands beside the answer.
        findings: what other verbs measured of its models.
    """
    rows = build_rows(results)
    return Page(
        title=f"{results.experiment.name}: results",
        heading=results.experiment.title,
        lead=_lead(results, rows),
        answers=(Answer(tuple(_remarks(results, rows))),),
        parts=(
            PagePart("Table", tables=tables_of(narrowed(table))),
            PagePart("Figures", pictures=tuple(pictures[1:])),
            PagePart("Pairs of rows", tables=tuple(_pairs(results))),
            *findings,
            PagePart("Runs that did not finish", logs=tuple(_logs(results))),
            PagePart("Speed of training", tables=tables_of(narrowed(_speed_table(rows)))),
            PagePart(
                "How each number was obtained", tables=tables_of(narrowed(_obtained_table(rows)))
            ),
            PagePart("Settings", tables=tables_of(_settings_table(rows))),
        ),
        source=provenance.full,
        picture=pictures[0] if pictures else None,
    )


def _lead(results: Results, rows: Sequence[TableRow]) -> str:
    states = [run.state for run in results.runs]
    done = states.count(RunState.FINISHED)
    stuck = sum(not row.did_train for row in rows)
    parts = [f"{len(rows)} row{'s' * (len(rows) != 1)}, {done} of {len(states)} runs finished"]
    if stuck:
        parts.append(f"{stuck} of {len(rows)} rows did not train")
    corpora = dict.fromkeys(run.config.corpus.name for run in results.runs)
    splits = dict.fromkeys(run.config.evaluate.split for run in results.runs)
    where = f"the {' and '.join(splits)} split of {', '.join(corpora)}"
    parts.append(f"loss on {where} at each row's best attention length, unless said otherwise")
    parts.append(f"{' and '.join(UNITS[unit] for unit in units(rows))}, lower is better")
    return "; ".join(parts) + "."


def _remarks(results: Results, rows: Sequence[TableRow]) -> Iterator[Remark]:
    found = comparisons(results)
    for unit in units(rows):
        labels = {label for label, _ in results.comparable_in(unit)}
        scored = [row for row in rows if row.label in labels and row.mean(best_loss)]
        compared = [row for row in scored if row.did_train]
        if scored and not compared:
            yield _untrained(scored)
            continue
        if not compared:
            yield Remark("Loss", (f"Nothing was measured yet in {UNITS[unit]}.",))
            continue
        by_measure = {measure: found[unit, measure] for measure in LOSSES}
        yield Remark("Lowest loss", (_extremes(compared, by_measure["best"]),))
        yield from setting_remarks(results, compared, by_measure)
        yield from _tests(by_measure["best"])
        if agreement := _agreement(compared, by_measure["best"]):
            yield Remark("The paper", (agreement,))
        if stuck := [row for row in rows if row.unit == unit and row.scored and not row.did_train]:
            yield _untrained(stuck)
    bad = [f"{run.label} (seed {run.config.seed}) {run.state}" for run in results.runs if run.error]
    if bad:
        yield Remark("Did not finish", (f"{_some(bad)}.",))


def _pairs(results: Results) -> Iterator[Table]:
    """How far apart each two rows are at their best, where several seeds tell."""
    for (_, measure), found in comparisons(results).items():
        if measure == "best" and found.tested > 1:
            yield pair_table(found)


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return f"{'; '.join(items[:MOST_NAMED])}{more}"


def _untrained(rows: Sequence[TableRow]) -> Remark:
    """What the table says of these rows, whose losses are no result."""
    reason = (
        f"{_some([row.label for row in rows])}: no better than a unigram model, so their losses"
    )
    return Remark("Did not train", (f"{reason} are not compared.",))


def _extremes(rows: Sequence[TableRow], compared: Comparison) -> str:
    """The best row, and of those compared with it the next and the last, at their best lengths."""
    unit = compared.unit
    means = {row.label: row.mean(best_loss) for row in rows}
    known = {label: found for label, found in means.items() if found is not None}
    first, *rest = sorted(known, key=lambda label: known[label].mean)
    others = [label for label in rest if compared.has(first, label)]
    text = f"{first}, {_estimate(known[first], unit)} {unit}"
    for label, word in ((others[:1], "next"), (others[1:][-1:], "last")):
        for each in label:
            behind = shown(known[each].mean - known[first].mean, unit, sign=True)
            text += f"; {word} {each}, {_estimate(known[each], unit)} ({behind})"
    return f"{text}."


def _estimate(found: Estimate, unit: str) -> str:
    text = shown(found.mean, unit)
    return text if found.half_width is None else f"{text} ± {shown(found.half_width, unit)}"


def _tests(found: Comparison) -> Iterator[Remark]:
    """Which rows differ, of all pairs, and which pairs are open."""
    once = sum(pair.verdict == "one seed" for pair in found.pairs)
    open_ = [pair for pair in found.pairs if pair.verdict == "not resolved"]
    if found.tested:
        count = f"{found.tested - len(open_)} of {found.tested}"
        differ = f"{count} pairs of rows differ at p ≤ {LEVEL:g}, after Holm's correction."
        yield Remark("Tested", (found.headline, differ))
    open_ += [pair for pair in found.pairs if pair.verdict == "not compared"]
    doubts = [f"{found.sentence(pair)}." for pair in open_[:MOST_DOUBTS]]
    if len(open_) > MOST_DOUBTS:
        doubts.append(f"And {len(open_) - MOST_DOUBTS} more pairs.")
    if once:
        which = f"{once} pairs of rows" if found.tested else "All of these differences"
        doubts.append(
            f"{which}: one seed each, so none is held against the scatter between seeds. Several "
            "seeds in the experiment file give intervals."
        )
    if doubts:
        yield Remark("Not resolved", tuple(doubts))


def _agreement(rows: Sequence[TableRow], compared: Comparison) -> str:
    """How many pairs of rows stand in the order of the paper's losses, and which do not."""
    for name in PAPER_LOSSES:
        known = [
            (row.label, float(value), mean.mean)
            for row in rows
            if isinstance(value := row.line.paper.get(name), int | float)
            and (mean := row.mean(best_loss))
        ]
        pairs = [
            (a, b) for a, b in combinations(known, 2) if a[1] != b[1] and compared.has(a[0], b[0])
        ]
        turned = [(a, b) for a, b in pairs if (a[1] - b[1]) * (a[2] - b[2]) < 0]
        if pairs:
            which = "; ".join(f"{a[0]} and {b[0]}" for a, b in turned)
            named = f"; not {which}" if 0 < len(turned) <= MOST_NAMED else ""
            count = len(pairs) - len(turned)
            return f"{count} of {len(pairs)} pairs of rows stand in the paper's order{named}."
    return ""


def _logs(results: Results) -> Iterator[Log]:
    for run in (run for run in results.runs if run.error):
        yield Log(
            f"{run.label}, seed {run.config.seed}: {run.state}",
            f"{run.directory.id}: {run.error}",
            _last_lines(run.directory),
        )


def _last_lines(run: RunDirectory) -> str:
    for path in (run.error_file, run.log_file):
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").rstrip().split("\n")
            if any(lines):
                return "\n".join(line[:LONGEST_LINE] for line in lines[-LAST_LINES:])
    return "(it wrote nothing)"


def _speed_table(rows: Sequence[TableRow]) -> Table:
    """Tokens a second in training, the slowest and the fastest seed, and how long it took."""
    timed = [row for row in rows if any(run.training.tokens_per_second for run in row.runs)]
    columns = (
        Column("row", tuple(row.label for row in timed)),
        Column("tokens/s", tuple(_range(_rates(row)) for row in timed), True),
        Column("minutes", tuple(_minutes(row) for row in timed), True),
        Column("parameters", tuple(compact(row.parameters) for row in timed), True),
        Column("trained on", tuple(_trained_on(row) for row in timed)),
    )
    footer = ("Of each run while it trained; runs of the same machine may have shared it.",)
    return Table(columns, footer, EMPTY, "Speed of training")


def _rates(row: TableRow) -> list[float]:
    return [found for run in row.runs if (found := run.training.tokens_per_second)]


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:,.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _minutes(row: TableRow) -> str:
    spent = [run.training.seconds / 60 for run in row.runs if run.training.seconds]
    if not spent:
        return EMPTY
    low, high = (f"{value:.1f}" for value in (min(spent), max(spent)))
    return low if low == high else f"{low} to {high}"


def _trained_on(row: TableRow) -> str:
    return "; ".join(dict.fromkeys(run.trained_how for run in row.runs))


def _obtained_table(rows: Sequence[TableRow]) -> Table:
    """The measurements behind init and best of every run."""
    scored = [(row, run, outcome) for row in rows for run, outcome in row.outcomes]
    inits = [outcome.init for *_, outcome in scored]
    regimes = [init.measurement for init in inits]

    def column(header: str, cells: Iterable[object], is_number: bool = True) -> Column:
        shown = (f"{each:,}" if isinstance(each, int) else str(each or EMPTY) for each in cells)
        return Column(header, tuple(shown), is_number)

    columns = (
        column("row", [row.label for row, *_ in scored], False),
        column("seed", [run.config.seed for _, run, _ in scored]),
        column("split", [each.split for each in regimes], False),
        *(
            column(name.replace("_", " "), [getattr(each, name) for each in regimes])
            for name in ("tgt_len", "mem_len", "stride", "batch_size")
        ),
        column("tokens", [init.tokens for init in inits]),
        column("dropped", [init.dropped for init in inits]),
        column("dtype", [init.dtype for init in inits], False),
        column("best at length", [outcome.best_length for *_, outcome in scored]),
        column("weights", [_weights(run) for _, run, _ in scored], False),
        column("run", [run.directory.id for _, run, _ in scored], False),
        column("commit", [(run.facts.commit or "unknown")[:12] for _, run, _ in scored], False),
    )
    footer = ("tgt len to dropped: of init; best at length: the keys that best sees.",)
    return Table(columns, footer, EMPTY, "Measurement of each run")


def _weights(run: RunResult) -> str:
    assert run.outcome is not None
    best = run.outcome.best
    return best.checkpoint if best.step is None else f"{best.checkpoint}, step {best.step:,}"


def _settings_table(rows: Sequence[TableRow]) -> Table:
    """All settings as resolved: those that rows differ in, by row, and below those they share."""
    settings = [flat_settings(row) for row in rows]
    keys = dict.fromkeys(key for each in settings for key in each)
    varied = [key for key in keys if len({str(each.get(key)) for each in settings}) > 1]
    columns = (
        Column("row", tuple(row.label for row in rows)),
        *(Column(key, tuple(_value(each.get(key)) for each in settings)) for key in varied),
    )
    same = [
        f"{key} {value}"
        for key in keys
        if key not in varied and (value := settings[0].get(key)) not in (None, "")
    ]
    seeds = dict.fromkeys(str(run.config.seed) for row in rows for run in row.runs)
    footer = (f"In every row: {', '.join(same)}.", f"Seeds: {', '.join(seeds)}.")
    return Table(columns, footer, EMPTY, "Settings")


def _value(value: object) -> str:
    return "none" if value is None else str(value)

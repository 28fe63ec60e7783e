"""RECL as tables: models down, shares across as in the paper's Table 8, and what bears on it."""

from collections.abc import Callable, Iterator, Mapping

from txlbench.records.context_schema import ContextRecord
from txlbench.records.finding_schema import ReclGroup, ReclRecord, ReclResult, Sensitivity
from txlbench.reporting.table import EMPTY, Column, Table

LIMITED = "*"


def short_source(record: ReclRecord | ContextRecord) -> str:
    """One line for the foot of a figure."""
    count = len(record.models)
    commit = record.commit or "unknown"
    verb = "recl" if isinstance(record, ReclRecord) else "context"
    return f"{verb}  ·  commit {commit}  ·  {count} model{'s' * (count != 1)}"


def full_source(record: ReclRecord | ContextRecord) -> str:
    """One line that names every model, the commit and the command."""
    models = "; ".join(
        f"{name}: {source.path or source.reference}" for name, source in record.models.items()
    )
    return f"Models {models}; {record.provenance}"


def length(line: ReclResult) -> str:
    """The paper's RECL: ≥ where the contexts ended first, * where the model can use no more."""
    if line.limited_by:
        return f"{line.recl}{LIMITED}"
    return f"≥{line.recl}" if line.capped else str(line.recl)


def above_null(line: ReclResult, last: int) -> str:
    """The RECL above the null, with the same marks."""
    found = line.recl_above_null
    if line.limited_by and found == line.recl:
        return f"{found}{LIMITED}"
    return f"≥{found}" if found == last else str(found)


def ecl(group: ReclGroup, model: str, first: int) -> str:
    """The effective context length: ≤ where it is the first context, an upper bound then."""
    found = group.ecl[model]
    return f"≤{found}" if found <= first else str(found)


def _with_interval(text: str, interval: tuple[int, int]) -> str:
    """A length and its bootstrap interval in brackets."""
    low, high = interval
    return f"{text} [{low}, {high}]"


def _table(record: ReclRecord, title: str, columns: list[Column], footer: tuple[str, ...]) -> Table:
    """A table of `record` without the columns that are empty in every row."""
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, footer, full_source(record), title)


def explanations(record: ReclRecord) -> Iterator[str]:
    """How the numbers came about, and how far they can be believed."""
    contexts = record.contexts
    marks = [length(line) for group in record.groups for line in group.results]
    yield (
        f"RECL as in Dai et al. 2019, Appendix C: contexts {contexts[0]} to {contexts[-1]} "
        f"({len(contexts)} of them), relative gain of at least {record.threshold:g}, r: the share "
        f"of {record.targets} that are the hardest. Models of a group share the baseline."
    )
    if record.unit == "bpb":
        yield (
            "The models' tokenizers differ, so all were scored on the same bytes: contexts are in "
            "bytes, losses in bits per byte. A unit is the text between two neighbouring "
            "boundaries that all tokenizers share; contexts begin at such boundaries too."
        )
    yield (
        f"In brackets: 2.5 to 97.5 % of 1,000 resamples of blocks of {record.targets}. They cover "
        f"the sampling of {record.targets} only, not the inflation of gains by noise, nor training "
        "seeds."
    )
    yield (
        "Above null: a step counts only if the model's own net gain reaches the threshold too and "
        f"passes a sign-flip test of blocks of {record.targets} (p ≤ {record.level:g})."
    )
    if any(mark.startswith("≥") for mark in marks):
        yield "≥: the last context was reached; longer ones might give more."
    if any(mark.endswith(LIMITED) for mark in marks):
        yield f"{LIMITED}: the model can use no longer context."
    yield (
        "ECL: the shortest context from which on, up to the best, perplexity is within the "
        "threshold of that at the best context (Khandelwal et al. 2018, who compare with an "
        f"unlimited one); ≤{contexts[0]}: shorter contexts were not measured."
    )
    for row in record.seeds:
        (mean, half), (above, above_half) = row.recl, row.recl_above_null
        yield (
            f"{row.row}, r={row.r:g}: RECL {mean:.0f} ± {half:.0f}, above null {above:.0f} ± "
            f"{above_half:.0f} (mean of {len(row.runs)} seeds, 95 % t-interval)."
        )
    for group in record.named_groups():
        yield _scored(group, record)


def _scored(group: ReclGroup, record: ReclRecord) -> str:
    """On what the group was scored, and how."""
    blocks = group.blocks
    splits = {split for model in group.models if (split := record.models[model].split)}
    name = f"Group {group.name}: s" if group.name else "S"
    where = f" of {splits.pop()}" if splits else ""
    return (
        f"{name}cored on {group.tokens:,} {record.targets}{where}{_place(group, record)}, in "
        f"{blocks.count:,} blocks of {blocks.positions}.{_settings(group, record)}"
    )


def _place(group: ReclGroup, record: ReclRecord) -> str:
    """Where the targets lie in their split, as far as the record says: ", one in 16 of 13 stretches
    from token 256 to 300,000"."""
    at = group.positions
    if at is None:
        return ""
    if record.unit == "bpb":
        return f", from byte {at.first:,} to {at.last:,}"
    text = "all" if at.step == 1 else f"one in {at.step}"
    if at.stretches > group.tokens / 10:
        text = "unevenly"
    elif at.stretches > 1:
        text += f" of {at.stretches} stretches"
    return f", {text} from token {at.first:,} to {at.last:,}"


def _settings(group: ReclGroup, record: ReclRecord) -> str:
    """How the losses were obtained: what all models share, then what they do not."""
    settings = {model: record.models[model].settings for model in group.models}
    pairs = {
        model: [f"{key} {value}" for key, value in each.items() if value not in (None, [])]
        for model, each in settings.items()
    }
    common = [pair for pair in next(iter(pairs.values())) if all(pair in p for p in pairs.values())]
    text = f" Losses: {', '.join(common)}." if common else ""
    for model, own in pairs.items():
        different = [pair for pair in own if pair not in common]
        text += f" {model}: {', '.join(different)}." if different else ""
    return text


Lines = list[tuple[ReclGroup, str]]
"""A line of the table: a model in its group."""


def recl_table(record: ReclRecord) -> Table:
    """RECL, RECL above the null, the paper's and ECL; columns without content are left out."""
    lines: Lines = [(group, model) for group in record.named_groups() for model in group.models]
    last = record.contexts[-1]

    def by_share(header: str, cell: Callable[[ReclResult], str]) -> list[Column]:
        return [
            Column(
                f"{header} r={share:g}",
                tuple(cell(group.result(model, share)) for group, model in lines),
                is_number=True,
            )
            for share in record.r
        ]

    columns = [
        Column("group", tuple(group.name for group, _ in lines)),
        Column("model", tuple(model for _, model in lines)),
        *by_share("RECL", lambda line: _with_interval(length(line), line.interval)),
        *by_share(
            "above null",
            lambda line: _with_interval(above_null(line, last), line.interval_above_null),
        ),
        *by_share("paper", lambda line: EMPTY if line.paper is None else f"{line.paper}"),
        Column("ECL", tuple(ecl(group, model, record.contexts[0]) for group, model in lines), True),
    ]
    warnings = (f"Warning: {warning}." for warning in record.warnings)
    footer = (*explanations(record), *warnings)
    return _table(record, "Relative effective context length", columns, footer)


def sensitivity_table(record: ReclRecord) -> Table:
    """Both RECLs, "paper's / above null", under other steps, first contexts and thresholds."""
    lines = [
        (group, model, share)
        for group in record.named_groups()
        for model in group.models
        for share in record.r
    ]
    found = {
        (group.name, line.model, line.r, line.setting): _both(line)
        for group in record.named_groups()
        for line in group.sensitivity
    }
    settings = dict.fromkeys(setting for *_, setting in found)
    columns = [
        Column("group", tuple(group.name for group, *_ in lines)),
        Column("model", tuple(model for _, model, _ in lines)),
        Column("r", tuple(f"{share:g}" for *_, share in lines), is_number=True),
        Column("as given", tuple(_both(g.result(m, r)) for g, m, r in lines), is_number=True),
        *(
            Column(
                name,
                tuple(found.get((g.name, m, r, name), EMPTY) for g, m, r in lines),
                is_number=True,
            )
            for name in settings
        ),
    ]
    title = "Other steps, first contexts and thresholds"
    return _table(record, title, columns, ("Each: RECL / RECL above the null.",))


def subgroup_table(record: ReclRecord) -> Table:
    """The paper's RECL of every model in every smaller group, which shares another baseline."""
    lines: dict[tuple[str, str, str], dict[float, str]] = {}
    for group in record.named_groups():
        for line in group.subgroups:
            others = [model for model in line.models if model != line.model]
            key = (group.name, line.model, ", ".join(others) or "alone")
            lines.setdefault(key, {})[line.r] = f"{'≥' * line.capped}{line.recl}"
    order = tuple(record.models)
    keys = sorted(lines, key=lambda key: (key[0], order.index(key[1])))
    columns = [
        Column("group", tuple(key[0] for key in keys)),
        Column("model", tuple(key[1] for key in keys)),
        Column("beside", tuple(key[2] for key in keys)),
        *(
            Column(f"RECL r={share:g}", tuple(lines[key][share] for key in keys), is_number=True)
            for share in record.r
        ),
    ]
    footer = ("The baseline of a group is the best of its models.",)
    return _table(record, "Smaller groups", columns, footer)


def _both(line: ReclResult | Sensitivity) -> str:
    return f"{line.recl} / {line.recl_above_null}"


def recl_lines(record: ReclRecord) -> Iterator[Mapping[str, object]]:
    """The lines of recl.csv: one a group, model and share, numbers in full."""
    for group in record.named_groups():
        for line in group.results:
            yield {
                "group": group.name,
                "model": line.model,
                "r": line.r,
                "recl": line.recl,
                "capped": line.capped,
                "limited_by": line.limited_by,
                "recl_above_null": line.recl_above_null,
                "paper": line.paper,
                "recl_low": line.interval[0],
                "recl_high": line.interval[1],
                "recl_above_null_low": line.interval_above_null[0],
                "recl_above_null_high": line.interval_above_null[1],
                "ecl": group.ecl[line.model],
                "threshold": record.threshold,
                "first_context": record.contexts[0],
                "last_context": record.contexts[-1],
                "contexts": len(record.contexts),
                "tokens": group.tokens,
                "commit": record.commit,
                "command": record.command,
            }

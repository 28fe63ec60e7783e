"""RECL as CSV for programs: one line a group, model and share, numbers in full.

recl.json as the tables and figures read it.

How a RECL and its surroundings are put into words.

RECL as tables: models down, shares across as in the paper's Table 8, and what bears on it.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.records.schema import read_of_schema
from txlbench.reporting.table import EMPTY, Column, Table

SCHEMA = "txlbench.recl/1"


@dataclass(frozen=True)
class Group:
    """One group of models.

    Attributes:
        name: a letter, empty where there is one group only.
        content: its entry in recl.json.
    """

    name: str
    content: Mapping[str, Any]

    @property
    def models(self) -> Sequence[str]:
        return self.content["models"]

    def result(self, model: str, r: float) -> Mapping[str, Any]:
        """The entry of one model and share."""
        return next(
            line for line in self.content["results"] if (line["model"], line["r"]) == (model, r)
        )

    def baseline(self, r: float) -> Sequence[float]:
        """exp f(c, c) of every step's shorter context c, a perplexity."""
        return next(line["perplexity"] for line in self.content["baselines"] if line["r"] == r)


@dataclass(frozen=True)
class ReclRecord:
    """All of recl.json; also the source that figures name.

    Attributes:
        command: what was typed to make what is written now.
    """

    content: Mapping[str, Any]
    command: str

    @property
    def contexts(self) -> Sequence[int]:
        return self.content["contexts"]

    @property
    def shares(self) -> Sequence[float]:
        return self.content["r"]

    @property
    def unit(self) -> str:
        return self.content["unit"]

    @property
    def threshold(self) -> float:
        return self.content["threshold"]

    @property
    def level(self) -> float:
        """Of the test against noise."""
        return self.content["level"]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.content["models"])

    def groups(self) -> Iterator[Group]:
        several = len(self.content["groups"]) > 1
        for index, content in enumerate(self.content["groups"]):
            yield Group(chr(ord("a") + index % 26) if several else "", content)

    @property
    def short(self) -> str:
        """One line for the foot of a figure."""
        commit = self.content["commit"] or "unknown"
        count = len(self.models)
        return f"recl  ·  commit {commit}  ·  {count} model{'s' * (count != 1)}"

    @property
    def full(self) -> str:
        """One line that names everything."""
        models = "; ".join(
            f"{name}: {source['path'] or source['reference']}"
            for name, source in self.content["models"].items()
        )
        commit = self.content["commit"] or "unknown"
        return f"Models {models}; commit {commit}; command: {self.command}"


def read_recl(path: Path, command: str) -> ReclRecord:
    """The record in `path`; UserError if it is not one of this schema."""
    return ReclRecord(read_of_schema(path, SCHEMA), command)


LIMITED = "*"


def length(line: Mapping[str, Any]) -> str:
    """The paper's RECL: ≥ where the contexts ended first, * where the model can use no more."""
    if line["limited_by"]:
        return f"{line['recl']}{LIMITED}"
    return f"≥{line['recl']}" if line["capped"] else str(line["recl"])


def above_null(line: Mapping[str, Any], last: int) -> str:
    """The RECL above the null, with the same marks."""
    found = line["recl_above_null"]
    if line["limited_by"] and found == line["recl"]:
        return f"{found}{LIMITED}"
    return f"≥{found}" if found == last else str(found)


def ecl(group: Group, model: str, first: int) -> str:
    """The effective context length: ≤ where it is the first context, an upper bound then."""
    found = group.content["ecl"][model]
    return f"≤{found}" if found <= first else str(found)


def with_interval(text: str, interval: list[int]) -> str:
    """A length and its bootstrap interval, which is left out where it is that length alone."""
    low, high = interval
    return f"{text} [{low}, {high}]"


def explanations(record: ReclRecord) -> Iterator[str]:
    """How the numbers came about, and how far they can be believed."""
    contexts = record.contexts
    lines = [line for group in record.groups() for line in group.content["results"]]
    yield (
        f"RECL as in Dai et al. 2019, Appendix C: contexts {contexts[0]} to {contexts[-1]} "
        f"({len(contexts)} of them), relative gain of at least {record.threshold:g}, r: the share "
        "of tokens that are the hardest. Models of a group share the baseline."
    )
    yield (
        "In brackets: 2.5 to 97.5 % of 1,000 resamples of blocks of tokens. They cover the "
        "sampling of tokens only, not the inflation of gains by noise, nor training seeds."
    )
    yield (
        "Above null: a step counts only if the model's own net gain reaches the threshold too and "
        "beats flipped signs "
        f"(p ≤ {record.level:g})."
    )
    marks = [length(line) for line in lines]
    if any(mark.startswith("≥") for mark in marks):
        yield "≥: the last context was reached; longer ones might give more."
    if any(mark.endswith(LIMITED) for mark in marks):
        yield f"{LIMITED}: the model can use no longer context."
    yield (
        "ECL: the shortest context from which on, up to the best, perplexity is within the "
        "threshold of that at the best context (Khandelwal et al. 2018, who compare with an "
        f"unlimited one); ≤{contexts[0]}: shorter contexts were not measured."
    )
    for group in record.groups():
        yield _scored(group, record)


def warnings(record: ReclRecord) -> Iterator[str]:
    """What should keep a reader from believing too much."""
    found = [warning for group in record.groups() for warning in group.content["warnings"]]
    yield from (f"Warning: {warning}." for warning in dict.fromkeys(found))


def _scored(group: Group, record: ReclRecord) -> str:
    """On what the group was scored, and how."""
    blocks = group.content["blocks"]
    sources = [record.content["models"][model] for model in group.models]
    splits = {source["split"] for source in sources if source["split"]}
    name = f"Group {group.name}: s" if group.name else "S"
    where = f" of {splits.pop()}" if splits else ""
    return (
        f"{name}cored on {group.content['tokens']:,} tokens{where}{_place(group)}, in "
        f"{blocks['count']:,} blocks of {blocks['positions']}.{_settings(group, record)}"
    )


def _place(group: Group) -> str:
    """Where the tokens lie in their split, as far as the record says: ", one in 16 of 13 stretches
    from token 256 to 300,000"."""
    at = group.content.get("positions")
    if at is None:
        return ""
    step, stretches = at["step"], at["stretches"]
    text = "all" if step == 1 else f"one in {step}"
    if stretches > group.content["tokens"] / 10:
        text = "unevenly"
    elif stretches > 1:
        text += f" of {stretches} stretches"
    return f", {text} from token {at['first']:,} to {at['last']:,}"


def _settings(group: Group, record: ReclRecord) -> str:
    """How the losses were obtained: what all models share, then what they do not."""
    settings = {model: record.content["models"][model]["settings"] for model in group.models}
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


Lines = list[tuple[Group, str]]
"""A line of the table: a model in its group."""


def recl_table(record: ReclRecord) -> Table:
    """RECL, RECL above the null, the paper's and ECL; columns without content are left out."""
    lines: Lines = [(group, model) for group in record.groups() for model in group.models]
    last = record.contexts[-1]

    def by_share(header: str, cell: Callable[[Mapping[str, Any]], str]) -> list[Column]:
        return [
            Column(
                f"{header} r={share:g}",
                tuple(cell(group.result(model, share)) for group, model in lines),
                is_number=True,
            )
            for share in record.shares
        ]

    columns = [
        Column("group", tuple(group.name for group, _ in lines)),
        Column("model", tuple(model for _, model in lines)),
        *by_share("RECL", lambda line: with_interval(length(line), line["interval"])),
        *by_share(
            "above null",
            lambda line: with_interval(above_null(line, last), line["interval_above_null"]),
        ),
        *by_share("paper", lambda line: EMPTY if line["paper"] is None else f"{line['paper']}"),
        Column("ECL", tuple(ecl(group, model, record.contexts[0]) for group, model in lines), True),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, (*explanations(record), *warnings(record)), record.full)


def sensitivity_table(record: ReclRecord) -> Table:
    """Both RECLs, "paper's / above null", under other steps, first contexts and thresholds."""
    lines = [
        (group, model, share)
        for group in record.groups()
        for model in group.models
        for share in record.shares
    ]
    found = {
        (group.name, line["model"], line["r"], line["setting"]): _both(line)
        for group in record.groups()
        for line in group.content["sensitivity"]
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
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, ("Each: RECL / RECL above the null.",), record.full)


def subgroup_table(record: ReclRecord) -> Table:
    """The paper's RECL of every model in every smaller group, which shares another baseline."""
    lines: dict[tuple[str, str, str], dict[float, str]] = {}
    for group in record.groups():
        for line in group.content["subgroups"]:
            key = (group.name, line["model"], _company(line))
            lines.setdefault(key, {})[line["r"]] = f"{'≥' * line['capped']}{line['recl']}"
    keys = sorted(lines, key=lambda key: (key[0], record.models.index(key[1])))
    columns = [
        Column("group", tuple(key[0] for key in keys)),
        Column("model", tuple(key[1] for key in keys)),
        Column("beside", tuple(key[2] for key in keys)),
        *(
            Column(f"RECL r={share:g}", tuple(lines[key][share] for key in keys), is_number=True)
            for share in record.shares
        ),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, ("The baseline of a group is the best of its models.",), record.full)


def _both(line: Mapping[str, Any]) -> str:
    return f"{line['recl']} / {line['recl_above_null']}"


def _company(line: Mapping[str, Any]) -> str:
    others = [model for model in line["models"] if model != line["model"]]
    return ", ".join(others) or "alone"


def recl_csv(record: ReclRecord) -> str:
    """Every result of `record`; what is not known is empty."""
    lines = [
        _line(record, group, result)
        for group in record.groups()
        for result in group.content["results"]
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _line(record: ReclRecord, group: Group, result: Mapping[str, Any]) -> dict[str, Any]:
    low, high = result["interval"]
    above_low, above_high = result["interval_above_null"]
    same = ("model", "r", "recl", "capped", "limited_by", "recl_above_null", "paper")
    return {
        "group": group.name,
        **{name: result[name] for name in same},
        "recl_low": low,
        "recl_high": high,
        "recl_above_null_low": above_low,
        "recl_above_null_high": above_high,
        "ecl": group.content["ecl"][result["model"]],
        "threshold": record.threshold,
        "first_context": record.contexts[0],
        "last_context": record.contexts[-1],
        "contexts": len(record.contexts),
        "tokens": group.content["tokens"],
        "commit": record.content["commit"],
        "command": record.command,
    }

"""How a RECL and its surroundings are put into words."""

from collections.abc import Iterator, Mapping
from typing import Any

from txlbench.reporting.recl.record import Group, ReclRecord

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
        "ECL: the shortest context with a perplexity within the threshold of that at the longest "
        "(Khandelwal et al. 2018)."
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
        f"{name}cored on {group.content['tokens']:,} tokens{where}, "
        f"{blocks['count']:,} blocks of {blocks['positions']}.{_settings(group, record)}"
    )


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

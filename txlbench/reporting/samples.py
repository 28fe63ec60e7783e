"""Samples as a page like the paper's Tables 11 to 13: context, sample and reference."""

from collections.abc import Iterator, Mapping, Sequence

from txlbench.config.base import displayed, shown
from txlbench.records.sample_schema import SampledText, SamplesRecord
from txlbench.reporting.pages.page import Answer, PagePart, Remark, SideText
from txlbench.reporting.table import EMPTY, Column, Table

EXCERPT = 80
"""Letters at the end of a context that the table shows."""


def short_source(record: SamplesRecord) -> str:
    """One line for the foot of a page."""
    return f"samples  \u00b7  commit {record.commit or 'unknown'}  \u00b7  {record.title}"


def _full_source(record: SamplesRecord) -> str:
    (source,) = record.models.values()
    return f"Model {record.title}: {source.reference}; {record.provenance}"


def sample_table(record: SamplesRecord) -> Table:
    """A line for each sample: where its context lies, and its loss beside the reference's."""
    found = record.samples
    columns = (
        Column("sample", tuple(str(n) for n in range(1, len(found) + 1)), True),
        Column("place", tuple("" if s.place is None else f"{s.place:,}" for s in found), True),
        Column("context ends in", tuple(_end(s.context) for s in found), rank=1),
        Column(f"{record.unit} of the sample", tuple(_loss(record, s.loss) for s in found), True),
        Column(
            f"{record.unit} of the reference",
            tuple(_loss(record, s.reference_loss) for s in found),
            True,
        ),
        Column("agreeing", tuple(f"{s.agreeing:,}" for s in found), True),
    )
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(explanations(record)), _full_source(record), "Samples")


def explanations(record: SamplesRecord) -> Iterator[str]:
    """How the texts came about."""
    (source,) = record.models.values()
    if record.context_tokens is None:
        yield "The context is the user's prompt."
    else:
        yield (
            f"Contexts: {record.context_tokens:,} consecutive tokens of {source.split} of "
            f"{source.settings.get('corpus')}, from places that seed {record.seed} draws; not "
            "chosen by hand. References: the tokens that follow there."
        )
    likeliest = "all tokens" if record.top_k is None else f"the {record.top_k} likeliest tokens"
    memory = "" if record.mem_len is None else f", mem_len {record.mem_len:,}"
    precision = "" if record.precision is None else f", in {record.precision}"
    yield (
        f"{record.tokens:,} tokens each, drawn one by one from {likeliest}, renormalised, at "
        f"temperature {record.temperature:g}{memory}{precision}."
    )
    yield (
        "Losses: of sample and reference given the context, by teacher forcing. Agreeing: tokens "
        f"of the sample that teacher forcing draws again, of {record.tokens:,}."
    )


def sample_lines(record: SamplesRecord) -> Iterator[Mapping[str, object]]:
    """The lines of the CSV file: texts and losses in nats."""
    for number, each in enumerate(record.samples, start=1):
        yield {
            "model": record.title,
            "sample": number,
            "place": each.place,
            "loss_nats": each.loss,
            "reference_loss_nats": each.reference_loss,
            "agreeing": each.agreeing,
            "context": each.context,
            "text": each.sample,
            "reference": each.reference,
            "commit": record.commit,
            "command": record.command,
        }


def sample_markdown(record: SamplesRecord) -> str:
    """The texts below each other."""
    parts = []
    for number, each in enumerate(record.samples, start=1):
        for name, text in _named(each):
            quoted = "\n".join(f">     {line}" for line in text.splitlines())
            parts.append(f"**{name} {number}**\n\n{quoted}\n")
    return "\n".join(parts)


def sample_answers(record: SamplesRecord) -> tuple[Answer, ...]:
    """How likely the model finds what it writes, and how likely what people wrote."""
    known = [each.reference_loss for each in record.samples if each.reference_loss is not None]
    own = sum(each.loss for each in record.samples) / len(record.samples)
    real = (
        f", the real ones {_loss(record, sum(known) / len(known))} {record.unit}" if known else ""
    )
    said = f"Its own continuations cost the model {_loss(record, own)} {record.unit}{real}."
    tokens = sum(len(each.ids) for each in record.samples)
    agreeing = sum(each.agreeing for each in record.samples)
    check = f"Teacher forcing draws {agreeing:,} of the {tokens:,} tokens again."
    return (Answer((Remark("Likelihood", (said,)), Remark("Check", (check,)))),)


def sample_parts(record: SamplesRecord) -> Iterator[PagePart]:
    """Each sample between its context and its reference."""
    for number, each in enumerate(record.samples, start=1):
        about = {
            "Context": "" if each.place is None else f"from token {each.place:,} of the split",
            "Sample": _with_unit(record, each.loss),
            "Reference": _with_unit(record, each.reference_loss),
        }
        texts = tuple(SideText(name, about[name], text) for name, text in _named(each))
        yield PagePart(f"Sample {number}", passages=texts)


def _with_unit(record: SamplesRecord, nats: float | None) -> str:
    return EMPTY if nats is None else f"{_loss(record, nats)} {record.unit}"


def _named(each: SampledText) -> Sequence[tuple[str, str]]:
    found = (("Context", each.context), ("Sample", each.sample), ("Reference", each.reference))
    return [(name, text) for name, text in found if text]


def _loss(record: SamplesRecord, nats: float | None) -> str:
    return EMPTY if nats is None else shown(displayed(nats, record.unit), record.unit)


def _end(text: str) -> str:
    short = " ".join(text[-EXCERPT:].split())
    return short if len(text) <= EXCERPT else f"\u2026{short}"

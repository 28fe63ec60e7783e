"""Attention as words, tables and lines of the CSV file."""

import math
from collections.abc import Iterator, Mapping, Sequence

from txlbench.records.attention_schema import AttentionRecord, HeadAttention, TermAttention
from txlbench.reporting.context import with_interval
from txlbench.reporting.pages.page import Answer, PagePart, Remark, Span
from txlbench.reporting.table import EMPTY, Column, Table

TERMS: Mapping[str, str] = {
    "a": "query and key",
    "b": "query and distance",
    "c": "bias and key",
    "d": "bias and distance",
    "e": "what the encoding adds",
    "f": "forget gates",
}
"""The paper's terms in words (section 3.3), and what encodings that have none add."""
STRONGEST = 0.2
"""Share of its keys that count as those a query attends to most (the paper's Figure 6)."""
STRONG, DEEPEST = "213, 94, 0", 0.6
"""Red, green and blue of the keys that are marked, and how strong the deepest is."""
EXACT = 1e-3
"""Spread over scale up to which distance alone decides a term: rounding."""


def strongest(shares: Sequence[float]) -> list[int]:
    """The fifth of the distances with the most attention, at least one, nearer ones first."""
    count = max(1, math.floor(STRONGEST * len(shares)))
    return sorted(sorted(range(len(shares)), key=lambda apart: -shares[apart])[:count])


def short_source(record: AttentionRecord) -> str:
    """One line for the foot of a figure."""
    return f"attention  ·  commit {record.commit or 'unknown'}  ·  {record.title}"


def _full_source(record: AttentionRecord) -> str:
    (source,) = record.models.values()
    return f"Model {record.title}: {source.reference}; {record.provenance}"


def attention_tables(record: AttentionRecord) -> tuple[Table, ...]:
    """A line for each layer first, then each head, then each term of each layer."""
    return (_layer_table(record), _head_table(record), _term_table(record))


def _layer_table(record: AttentionRecord) -> Table:
    layers = record.layers
    columns = [
        Column("layer", tuple(map(str, layers)), True),
        Column("mean distance", tuple(_mean(heads, "distance") for heads in layers.values()), True),
        Column("of its heads", tuple(map(_range, layers.values())), True, rank=2),
        Column("entropy (nats)", tuple(_mean(h, "entropy") for h in layers.values()), True),
        Column("on itself", tuple(_share(h, 0) for h in layers.values()), True, rank=1),
        Column("on the first key", tuple(map(_first, layers.values())), True, rank=1),
        *(
            Column(
                f"scale of ({letter})",
                tuple(f"{_scale(record, layer, letter):.2f}" for layer in layers),
                True,
                rank=1,
            )
            for letter in record.letters
        ),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(explanations(record)), _full_source(record), "Attention by layer")


def _head_table(record: AttentionRecord) -> Table:
    heads = record.heads
    columns = (
        Column("head", tuple(head.name for head in heads), True),
        Column("mean distance", tuple(with_interval(h.distance, ".2f") for h in heads), True),
        Column("entropy (nats)", tuple(with_interval(h.entropy, ".3f") for h in heads), True),
        Column("keys alike", tuple(f"{math.exp(h.entropy.value):.1f}" for h in heads), True),
        Column("on itself", tuple(f"{h.profile[0]:.1%}" for h in heads), True),
        Column("on the first key", tuple(map(_first_of, heads)), True),
    )
    kept = tuple(column for column in columns if not column.is_empty)
    footer = (
        "LAYER.HEAD. Keys alike: exp of the entropy, the number of keys that would be attended to "
        "alike. In brackets: 95 % t-intervals over 20 blocks of consecutive tokens.",
    )
    return Table(kept, footer, _full_source(record), "Attention by head")


def _term_table(record: AttentionRecord) -> Table:
    lines = [(layer, letter) for layer in record.layers for letter in record.letters]
    found = [_terms_of(record, *line) for line in lines]
    columns = (
        Column("layer", tuple(str(layer) for layer, _ in lines), True),
        Column("term", tuple(f"({letter}) {TERMS[letter]}" for _, letter in lines)),
        Column("scale", tuple(f"{_rms(each, 'scale'):.3f}" for each in found), True),
        Column("at one distance", tuple(f"{_rms(each, 'spread'):.3f}" for each in found), True),
        Column("mean distance alone", tuple(f"{_alone(each):.2f}" for each in found), True),
    )
    footer = (
        "Scale: standard deviation of a query's scores over its keys, as they enter the softmax. "
        "At one distance: over queries. Roots of mean squares over the heads of a layer. Mean "
        "distance alone: of the softmax of this term only.",
    )
    return Table(columns, footer, _full_source(record), "Terms of the scores by layer")


def explanations(record: AttentionRecord) -> Iterator[str]:
    """How the numbers came about, and whether attention is what it has to be."""
    least, most = record.keys
    seen = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    (source,) = record.models.values()
    corpus = source.settings.get("corpus")
    place = f"{source.split} of {corpus}" if corpus else str(source.split)
    way = "streaming with memory" if record.regime == "streaming" else "windows without memory"
    clamp = "" if record.clamp_len is None else f", clamp_len {record.clamp_len}"
    yield (
        f"{record.queries:,} tokens of {place}, each sees {seen} keys, itself included; "
        f"{way}{clamp}, {record.dtype}. Distances in tokens, 0 is the query's own token."
    )
    yield (
        f"Rows of attention sum to one within {record.row_error:.1g}; {record.leak:.1g} at most "
        "lies on what a query may not see."
    )
    if record.apart:
        yield (
            f"Distances leave out {_apart(record)}: the attention on it, which is needed nowhere "
            "else, stands apart as that on the first key."
        )
    if record.memory == "compressive":
        yield "Distances count places in memory, where a compressed state is one step."
    if record.silent_layers:
        layers = ", ".join(map(str, record.silent_layers))
        yield f"Layers {layers} give no attention."


def sentences(record: AttentionRecord) -> Iterator[str]:
    """What a reader should know first."""
    far, near = (
        choose(record.heads, key=lambda head: head.distance.value) for choose in (max, min)
    )
    yield (
        f"Head {far.name} looks farthest back, {with_interval(far.distance, '.1f')} tokens on "
        f"average; head {near.name} stays nearest, at {with_interval(near.distance, '.1f')}."
    )
    layers = {layer: _average(heads, "distance") for layer, heads in record.layers.items()}
    widest = max(layers, key=lambda layer: layers[layer])
    narrowest = min(layers, key=lambda layer: layers[layer])
    if len(layers) > 1:
        yield (
            f"By layer, mean distance is largest in layer {widest} ({layers[widest]:.1f} tokens) "
            f"and smallest in layer {narrowest} ({layers[narrowest]:.1f})."
        )
    sharp = min(record.heads, key=lambda head: head.entropy.value)
    yield (
        f"Head {sharp.name} is the most selective: its entropy is that of "
        f"{math.exp(sharp.entropy.value):.1f} keys attended to alike."
    )
    if record.apart:
        shares = {
            layer: sum(head.first or 0.0 for head in heads) / len(heads)
            for layer, heads in record.layers.items()
        }
        most = max(shares, key=lambda layer: shares[layer])
        yield (
            f"On average {sum(shares.values()) / len(shares):.0%} of attention rests on "
            f"{_apart(record)}, most in layer {most} ({shares[most]:.0%}): an attention sink, "
            "which distances leave out."
        )


def _apart(record: AttentionRecord) -> str:
    """The keys that have no distance, in words."""
    if record.regime == "streaming":
        return f"the first {record.apart} tokens of each stream, which memory keeps"
    return "the BOS of each window" if record.adds_bos else "the first token of each window"


def term_sentences(record: AttentionRecord) -> Iterator[str]:
    """The scale of each term of the scores, and whether distance alone decides it."""
    for letter in record.letters:
        found = [each for each in record.terms if each.term == letter]
        scale, spread = _rms(found, "scale"), _rms(found, "spread")
        decided = (
            "distance alone decides it"
            if spread <= EXACT * max(scale, EXACT)
            else f"at one distance it varies by {spread:.2f}"
        )
        yield f"Term ({letter}), {TERMS[letter]}, has a scale of {scale:.2f}; {decided}."


def attention_answers(record: AttentionRecord) -> tuple[Answer, ...]:
    """What is said first on the page."""
    found = {"Where": tuple(sentences(record)), "Terms of scores": tuple(term_sentences(record))}
    return (Answer(tuple(Remark(name, lines) for name, lines in found.items() if lines)),)


def coloured_texts(record: AttentionRecord) -> Iterator[PagePart]:
    """The context of the first target as text, as deep as each chosen head attends to it."""
    shown = record.shown
    if shown is None or not shown.is_text:
        return
    context = shown.tokens[: len(shown.tokens) - shown.count]
    target = shown.tokens[len(context)]
    for head in shown.heads:
        shares = head.rows[0]
        marked, most = set(strongest(shares)), max(shares)
        spans = [
            Span(
                text,
                f"{apart} back: {shares[apart]:.2%} of attention",
                STRONG,
                DEEPEST * (0.2 + 0.8 * shares[apart] / most) if apart in marked else 0.0,
            )
            for apart, text in zip(reversed(range(len(context))), context, strict=True)
        ]
        yield PagePart(
            f"What head {head.layer}.{head.head} attends to",
            notes=(
                f"All that the query sees which predicts {target!r}, the last of it the token that "
                "it reads; orange: the fifth of its keys with the most attention.",
            ),
            text=tuple(spans),
        )


def attention_lines(record: AttentionRecord) -> Iterator[Mapping[str, object]]:
    """The lines of the CSV file: every number by layer, head and term, profiles left out."""
    for head in record.heads:
        yield _line(record, head, "mean_distance", **_values(head.distance))
        yield _line(record, head, "entropy_nats", **_values(head.entropy))
        yield _line(record, head, "on_itself", value=head.profile[0])
        if head.first is not None:
            yield _line(record, head, "on_first_key", value=head.first)
    for term in record.terms:
        for name in ("scale", "spread"):
            yield _line(record, term, f"{name}_of_{term.term}", value=getattr(term, name))


def _values(found: object) -> dict[str, object]:
    return {name: getattr(found, name) for name in ("value", "low", "high")}


def _line(
    record: AttentionRecord, of: HeadAttention | TermAttention, measure: str, **values: object
) -> Mapping[str, object]:
    return {
        "model": record.title,
        "layer": of.layer,
        "head": of.head,
        "measure": measure,
        **{name: values.get(name) for name in ("value", "low", "high")},
        "commit": record.commit,
        "command": record.command,
    }


def _terms_of(record: AttentionRecord, layer: int, letter: str) -> list[TermAttention]:
    return [each for each in record.terms if (each.layer, each.term) == (layer, letter)]


def _scale(record: AttentionRecord, layer: int, letter: str) -> float:
    return _rms(_terms_of(record, layer, letter), "scale")


def _rms(terms: Sequence[TermAttention], name: str) -> float:
    squares = [getattr(each, name) ** 2 for each in terms]
    return math.sqrt(sum(squares) / max(1, len(squares)))


def _alone(terms: Sequence[TermAttention]) -> float:
    """Mean distance of the softmax of a term alone, over heads."""
    means = [sum(apart * share for apart, share in enumerate(t.profile)) for t in terms]
    return sum(means) / max(1, len(means))


def _average(heads: Sequence[HeadAttention], name: str) -> float:
    return float(sum(getattr(head, name).value for head in heads) / len(heads))


def _mean(heads: Sequence[HeadAttention], name: str) -> str:
    return f"{_average(heads, name):.2f}"


def _range(heads: Sequence[HeadAttention]) -> str:
    values = [head.distance.value for head in heads]
    return f"{min(values):.1f} to {max(values):.1f}"


def _share(heads: Sequence[HeadAttention], apart: int) -> str:
    return f"{sum(head.profile[apart] for head in heads) / len(heads):.1%}"


def _first_of(head: HeadAttention) -> str:
    return EMPTY if head.first is None else f"{head.first:.1%}"


def _first(heads: Sequence[HeadAttention]) -> str:
    known = [head.first for head in heads if head.first is not None]
    return f"{sum(known) / len(known):.1%}" if known else EMPTY

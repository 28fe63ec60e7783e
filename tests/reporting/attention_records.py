"""Records as `attention` writes them, made by hand."""

from pathlib import Path

import numpy as np

from txlbench.files import write_json
from txlbench.records.attention_schema import (
    AttentionRecord,
    HeadAttention,
    HeadRows,
    ShownTargets,
    TermAttention,
)
from txlbench.records.context_schema import Interval
from txlbench.records.finding_schema import ReclSource

COMMAND = "txlbench attention a/XL"


def shares(random, count, keys):
    """Lines of attention that sum to one."""
    scores = random.standard_normal((count, keys)) * 2
    found = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return tuple(tuple(line) for line in found.tolist())


def record(layers=2, heads=2, keys=8, targets=3, letters="abcd", words=(), **changes):
    """A model in which head 2 of layer 1 looks farthest back."""
    random = np.random.default_rng(1)
    places = [(layer, head) for layer in range(1, layers + 1) for head in range(1, heads + 1)]
    profiles = shares(random, len(places), keys)
    found = tuple(
        HeadAttention(
            layer=layer,
            head=head,
            distance=Interval(value=2.0 + ((layer, head) == (1, 2)), low=1.5, high=3.5),
            entropy=Interval(value=1.0 + 0.1 * head),
            profile=profile,
        )
        for (layer, head), profile in zip(places, profiles, strict=True)
    )
    terms = tuple(
        TermAttention(
            layer=layer, head=head, term=letter, scale=1.5 - 0.1 * layer,
            spread=0.0 if letter == "d" else 0.5, profile=profiles[0],
        )
        for layer, head in places
        for letter in letters
    )  # fmt: skip
    tokens = words or tuple("the model reads a text that is longer than it"[: keys + targets])
    source = ReclSource(
        reference="a/XL", path=None, corpus=None, split="test", vocabulary=None, model=None,
        longest=None, settings={"corpus": "mine"},
    )  # fmt: skip
    made = AttentionRecord(
        schema=AttentionRecord.SCHEMA,
        commit="abc",
        command=COMMAND,
        models={"XL": source},
        keys=(keys, keys),
        regime="streaming",
        queries=1000,
        clamp_len=None,
        dtype="fp32",
        row_error=2e-7,
        leak=0.0,
        heads=found,
        terms=terms,
        shown=ShownTargets(
            first=100,
            tokens=tokens,
            count=targets,
            is_text=True,
            heads=tuple(
                HeadRows(layer=layer, head=head, rows=shares(random, targets, keys))
                for layer, head in places[:3]
            ),
        ),
    )
    return made.model_copy(update=changes)


def write_record(folder):
    write_json(folder / "attention.json", record().content)
    return Path(folder)

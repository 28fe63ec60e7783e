"""References to models: what is known before weights are loaded, and models of one's own."""

import json
from pathlib import Path

import pytest
import torch

from tests.runs.trial import finished, write_spec
from txlbench.commands import model_ref
from txlbench.commands.model_ref import Capabilities, ModelRef, resolve
from txlbench.commands.recl import run_recl
from txlbench.commands.recl_request import ReclRequest
from txlbench.errors import UserError


class Toy:
    """A model whose loss halves with each doubling of the context, up to 32 tokens."""

    def token_losses(self, tokens_BT):
        seen = torch.arange(1, tokens_BT.shape[1]).clamp(max=32)
        return (8 / seen).expand(len(tokens_BT), -1)


def open_toy(reference, place):
    known = Capabilities(256, level="byte")
    return ModelRef(reference, known, Path("losses"), lambda: place, lambda device: Toy())


def test_a_model_with_token_losses_alone_goes_through_recl(monkeypatch):
    monkeypatch.setitem(model_ref.SOURCES, "toy", open_toy)
    Path("mine.txt").write_bytes(bytes(range(256)) * 40)
    asked = ReclRequest(
        (("toy:one",),), contexts=(4, 8, 16, 32, 64), corpus="mine.txt", device="cpu"
    )
    found = json.loads(run_recl(asked).path.read_text())
    losses = found["groups"][0]["losses"]["one"]
    assert losses == [2, 1, 0.5, 0.25, 0.25]
    assert {line["recl"] for line in found["groups"][0]["results"]} == {32}


def test_what_needs_more_than_losses_is_refused_by_a_toy(monkeypatch):
    monkeypatch.setitem(model_ref.SOURCES, "toy", open_toy)
    with pytest.raises(UserError, match="offers the losses of windows only"):
        _ = resolve("toy:one").load(torch.device("cpu")).settings


@pytest.mark.parametrize(
    ("settings", "longest", "in_segments", "attends"),
    [
        ({"model.encoding": "xl"}, None, True, True),
        ({"model.encoding": "absolute"}, 8, False, True),
        ({"model.encoding": "al-rfou"}, 8, False, True),
        ({"model.kind": "lstm"}, None, True, False),
    ],
    ids=str,
)
def test_capabilities_are_known_before_weights_are_loaded(settings, longest, in_segments, attends):
    write_spec(settings)
    known = resolve(str(finished().path)).capabilities
    assert (known.longest_context, known.reads_in_segments) == (longest, in_segments)
    assert (known.attends, known.units, known.vocabulary_size) == (attends, ("bpc",), 256)

"""LongPPL of `context` beside that of the published package, on one small model.

    pip install --no-deps longppl==0.3.0 && python -m tests.benchmarks.against_longppl

The package reads any model with `.logits`. Its windows slide by at least 2 tokens, so that every
other token has K + 1 tokens of short context; the losses compared here have the same.
"""

import math
from types import SimpleNamespace

import numpy as np
import torch
from longppl.longppl import compute_longppl

from txlbench.evaluation.context.curve import Means
from txlbench.evaluation.context.key_tokens import key_tokens
from txlbench.evaluation.context.resampling import Resampling
from txlbench.evaluation.recl.metric import ModelGroup

SHORT, LENGTH, SYMBOLS = 8, 400, 16


class Repeating(torch.nn.Module):
    """Predicts that what followed the last occurrence of the last two tokens follows again."""

    device = torch.device("cpu")

    def forward(self, ids_BT):
        batch, length = ids_BT.shape
        logits = torch.zeros(batch, length, SYMBOLS)
        for row, ids in enumerate(ids_BT.tolist()):
            seen = {}
            for place in range(1, length):
                pair = (ids[place - 1], ids[place])
                if pair in seen:
                    logits[row, place, seen[pair]] = 6.0
                if place + 1 < length:
                    seen[pair] = ids[place + 1]
        return SimpleNamespace(logits=logits)


class Letters:
    """A tokenizer of one letter a token."""

    def __call__(self, text, return_offsets_mapping=False, **_):
        ids = torch.tensor([[ord(letter) - 97 for letter in text]])
        offsets = torch.tensor([[[place, place + 1] for place in range(len(text))]])
        return {"input_ids": ids, "offset_mapping": offsets}


def our_losses(model, ids):
    """[2, T]: losses of tokens from SHORT on, in their short windows and given all before them."""
    found = []
    for place in range(SHORT, len(ids)):
        for start in (place - SHORT - place % 2, 0):
            logits = model(torch.tensor([ids[start:place]])).logits[0, -1]
            found.append(-torch.log_softmax(logits, -1)[ids[place]].item())
    return np.array(found).reshape(-1, 2).T


def main() -> None:
    random = np.random.default_rng(0)
    phrase = random.integers(SYMBOLS, size=40)
    ids = np.concatenate(
        [phrase if k % 3 else random.integers(SYMBOLS, size=40) for k in range(10)]
    )
    text = "".join(chr(97 + number) for number in ids.tolist())
    model = Repeating()
    theirs = compute_longppl(
        text, model, model, Letters(), Letters(), trunc_len=SHORT, sliding_window=2
    )
    losses = our_losses(model, ids.tolist())
    positions = np.arange(SHORT, len(ids))
    group = ModelGroup(("a",), losses[None], (SHORT, LENGTH), positions, (None,))
    resampling = Resampling.of(group.losses, group.positions, 0)
    (ours,) = key_tokens(group, Means.of(group, resampling), resampling)
    assert ours.longppl is not None
    print(f"theirs {theirs['longppl']:.9f} over {theirs['n_key_token']} tokens")
    print(f"ours   {ours.longppl.value:.9f} over {ours.tokens} tokens")
    assert ours.tokens == theirs["n_key_token"]
    assert math.isclose(ours.longppl.value, float(theirs["longppl"]), rel_tol=1e-6)  # float32


if __name__ == "__main__":
    main()

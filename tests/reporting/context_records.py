"""Records as `context` writes them, of losses with a known truth."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from txlbench.commands.context import ContextRequest, measure_context
from txlbench.files import write_json

COMMAND = "txlbench context --models XL.npz"
DENSE = tuple(range(1, 33))
WORDS = ("the", "of", "a", "in", "memory", "long", "short", "word", "er", "ing", "ed", ",")
PIECES = tuple("\u0120" * (k < 8) + word for k, word in enumerate(WORDS))
LENGTH = 1500


def save(path, power=0.4, contexts=DENSE, tokens=1000, seed=0, noise=0.1, **changes):
    """A model whose losses are a power law of context, with the text it was scored on."""
    random = np.random.default_rng(seed)
    ends = np.arange(max(contexts) + 2.0)
    curve = 1.0 + 2.0 * np.diff(ends**power)
    hardness = np.random.default_rng(99).gamma(4.0, 0.25, tokens)
    losses = curve[list(contexts)][:, None] * hardness
    losses = losses + noise * random.standard_normal(losses.shape)
    content = {
        "losses": losses.astype(np.float32),
        "contexts": np.array(contexts),
        "positions": LENGTH - tokens + np.arange(tokens),
        "split": "test",
        "ids": np.random.default_rng(7).integers(len(PIECES), size=LENGTH),
        "pieces": np.array(PIECES),
        "counts": 100 * (1 + np.arange(len(PIECES))),
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return str(path)


def measured(folder, groups=(("XL", "LSTM"),), **changes):
    """The record of models in `folder`; XL has the larger exponent."""
    save(folder / "XL.npz", 0.5, seed=1, settings='{"unit": "bpc"}')
    save(folder / "LSTM.npz", 0.3, seed=2, settings='{"unit": "bpc"}')
    names = tuple(tuple(str(folder / f"{name}.npz") for name in group) for group in groups)
    return measure_context(ContextRequest(names, command=COMMAND, dense=16, **changes))


@cache
def content():
    """What context.json holds of both models, measured once."""
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder)).content


def write_record(folder):
    write_json(folder / "context.json", content())
    return Path(folder)

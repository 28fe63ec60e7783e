import numpy as np
import pytest

from tests.evaluation.context.made import group
from txlbench.evaluation.context.token_classes import TokenText
from txlbench.evaluation.context.token_view import NoSpanError, stretch_ends, token_view
from txlbench.evaluation.recl.metric import ModelGroup

CONTEXTS = tuple(range(1, 9))


def helped_at(distances, tokens=100):
    """Losses of 3 nats, less 1 as soon as the context reaches each token's distance."""
    reached = np.array(CONTEXTS)[:, None] >= distances
    return 3.0 - reached * 1.0


def test_credit_is_of_the_token_that_helps():
    """A token that was put so many tokens back gets all the credit, and no other."""
    distances = np.random.default_rng(0).integers(2, 9, size=100)
    view = token_view(group(helped_at(distances)[None], CONTEXTS), None)
    for position, line in zip(view.positions, view.credit["a"], strict=True):
        expected = [float(back == distances[position - 1000]) for back in CONTEXTS[1:]]
        assert list(line) == pytest.approx(expected, abs=1e-9)
    assert not view.is_text
    assert view.tokens[0] == f"{view.positions[0]:,}"


def test_credit_of_a_stretch_is_the_sum_over_its_tokens():
    """D(t, c) = l(c - 1, t) - l(c, t), added up from context to context."""
    losses = np.random.default_rng(1).normal(3, 1, (2, 40, 60))
    dense = group(losses, range(1, 41))
    view = token_view(dense, None)
    assert view.contexts[0] == 1
    assert view.contexts[-1] == 40
    for model, name in enumerate(dense.names):
        for position, line in zip(view.positions, view.credit[name], strict=True):
            token = position - 1000
            for stretch, credit in enumerate(line):
                low, high = view.contexts[stretch], view.contexts[stretch + 1]
                total = 0.0
                for c in range(low + 1, high + 1):
                    total += losses[model, c - 2, token] - losses[model, c - 1, token]
                assert credit == pytest.approx(total, abs=1e-9)


def test_the_span_is_where_context_helps_most():
    distances = np.full(300, 9)
    distances[120:168] = 4
    view = token_view(group(helped_at(distances)[None], CONTEXTS), None)
    assert view.positions == tuple(range(1120, 1168))


def test_tokens_read_as_the_text_says():
    ids = np.arange(2000) % 26
    text = TokenText(ids, tuple("abcdefghijklmnopqrstuvwxyz"))
    view = token_view(group(helped_at(np.full(100, 3))[None], CONTEXTS), text)
    assert "".join(view.tokens[:3]) == "".join(
        "abcdefghijklmnopqrstuvwxyz"[position % 26] for position in view.positions[:3]
    )


def test_tokens_apart_are_no_span():
    losses = helped_at(np.full(100, 3))[None]
    apart = ModelGroup(("a",), losses, CONTEXTS, 1000 + 3 * np.arange(100), (None,))
    with pytest.raises(NoSpanError, match="no 12 successive tokens"):
        token_view(apart, None)
    pieces = np.where(np.arange(100) < 80, 3 * np.arange(100), 200 + np.arange(100))
    some = ModelGroup(("a",), losses, CONTEXTS, 1000 + pieces, (None,))
    assert token_view(some, None).positions == tuple(range(1280, 1300))


def test_stretches_are_few():
    assert stretch_ends((1, 2, 5)) == [0, 1, 2]
    ends = [range(1, 257)[row] for row in stretch_ends(range(1, 257))]
    assert ends[0] == 1
    assert ends[-1] == 256
    assert len(ends) <= 11

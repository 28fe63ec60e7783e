"""Windows of other programs: which tokens count, after which context, with which weight."""

import math

import numpy as np
import pytest
import torch

from txlbench.errors import UserError
from txlbench.evaluation.protocols import (
    hf_guide_windows,
    llama_cpp_windows,
    lm_eval_windows,
    score_protocol,
    sliding_windows,
)

CPU = torch.device("cpu")


def scored(windows):
    """(target, context) -> weight of every loss that counts."""
    return {
        (target, target - each.start): each.weight
        for each in windows
        for target in range(each.stop - each.scored, each.stop)
    }


class Places:
    """The loss of a token is its id plus a thousandth of its context."""

    def token_losses(self, tokens_BT):
        return tokens_BT[:, 1:] + torch.arange(1, tokens_BT.shape[1]) / 1000


def score(windows, tokens=20, **options):
    return score_protocol(
        lambda contexts: (Places(), 2), np.arange(tokens), windows, CPU, **options
    )


@pytest.mark.parametrize(("tokens", "window", "stride"), [(20, 6, 2), (20, 6, 6), (5, 6, 1)])
def test_a_sliding_window_scores_each_token_once_after_the_most_context(tokens, window, stride):
    found = scored(sliding_windows(tokens, window, stride))
    assert sorted(target for target, _ in found) == list(range(1, tokens))
    for target, context in found:
        assert context == target if target <= window else window - stride < context <= window
    assert set(found.values()) == {1.0}


def test_lm_eval_scores_disjoint_windows_and_gives_the_last_full_context():
    found = scored(lm_eval_windows(11, 4))  # a prefix and the ten tokens of its docstring
    contexts = [context for _, context in sorted(found)]
    assert contexts == [1, 2, 3, 4, 1, 2, 3, 4, 3, 4]


def test_llama_cpp_scores_second_halves_and_drops_the_tail():
    found = scored(llama_cpp_windows(11, 4))
    assert sorted(found) == [(3, 3), (7, 3)]
    assert sorted(scored(llama_cpp_windows(10, 5))) == [(3, 3), (4, 4), (8, 3), (9, 4)]


def test_the_guide_weights_later_windows_by_one_target_too_few():
    windows = list(hf_guide_windows(10, 4, 3))
    assert [(w.start, w.stop, w.scored) for w in windows] == [(0, 4, 3), (3, 7, 3), (6, 10, 3)]
    assert [w.weight for w in windows] == [1.0, 2 / 3, 2 / 3]
    windows = list(hf_guide_windows(9, 4, 4))  # without overlap, first tokens are never scored
    assert [(w.start, w.stop, w.scored, w.weight) for w in windows] == [(0, 4, 3, 1), (4, 8, 3, 1)]


def test_losses_are_summed_with_their_weights_and_contexts_told():
    found = score(sliding_windows(20, 6, 3))
    contexts = [context for _, context in scored(sliding_windows(20, 6, 3))]
    assert found.tokens == found.weight == 19
    assert found.nats == pytest.approx(sum(range(20)) + sum(contexts) / 1000)
    assert found.mean_context == pytest.approx(np.mean(contexts))
    weighted = score(hf_guide_windows(20, 6, 3))
    expected = scored(hf_guide_windows(20, 6, 3))
    sums = sum((target + context / 1000) * weight for (target, context), weight in expected.items())
    assert weighted.loss == pytest.approx(sums / sum(expected.values()))


def test_the_error_of_llama_cpp_is_that_of_independent_tokens():
    found = score(llama_cpp_windows(20, 4))
    values = [target + context / 1000 for target, context in scored(llama_cpp_windows(20, 4))]
    assert found.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)))


def test_the_first_token_of_windows_is_replaced():
    seen = []

    class Watching(Places):
        def token_losses(self, tokens_BT):
            seen.extend(tokens_BT.tolist())
            return super().token_losses(tokens_BT)

    score_protocol(
        lambda contexts: (Watching(), 2), np.arange(12), llama_cpp_windows(12, 4), CPU, first=99
    )
    assert seen == [[99, 1, 2, 3], [99, 5, 6, 7], [99, 9, 10, 11]]


def test_a_text_without_a_scored_token_is_refused():
    with pytest.raises(UserError, match="no token of the text is scored"):
        score(llama_cpp_windows(3, 4), 3)

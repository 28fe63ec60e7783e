"""The forgetting curve of models whose recall is known."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.evaluation.context.made import assert_nominal, holds, simulated
from txlbench.errors import UserError
from txlbench.evaluation.context import forgetting
from txlbench.evaluation.context.changed_windows import last_losses
from txlbench.evaluation.context.forgetting import (
    Recall,
    copy_windows,
    forgetting_curve,
    paired_p,
    scored_tokens,
    text_starts,
)
from txlbench.evaluation.context_losses import PartialLosses

SYMBOLS = 1000
"""So many that two tokens hardly ever recur by chance."""
IDS = np.random.default_rng(5).integers(SYMBOLS, size=4000)
CPU = torch.device("cpu")


@dataclass
class Copier:
    """Predicts, surely, what followed the last occurrence of the last two tokens within `reach`."""

    reach: int
    seen: int = 0

    def token_predictions(self, tokens_BT):
        rows = tokens_BT.tolist()
        guesses = [[self.guess(row[: end + 1]) for end in range(len(row) - 1)] for row in rows]
        self.seen += len(rows)
        hits_BT = torch.tensor(guesses) == tokens_BT[:, 1:]
        return torch.where(hits_BT, -math.log(0.9), -math.log(0.1 / (SYMBOLS - 1))), hits_BT

    def token_losses(self, tokens_BT):
        return self.token_predictions(tokens_BT)[0]

    def guess(self, read):
        """The token `reach` back at most that followed the same two."""
        for place in range(len(read) - 1, max(1, len(read) - self.reach - 1), -1):
            if read[place - 2 : place] == read[-2:]:
                return read[place]
        return -1


class Bigram:
    """Knows which token follows which, and no more."""

    def token_predictions(self, tokens_BT):
        hits_BT = tokens_BT[:, 1:] == (tokens_BT[:, :-1] + 1) % SYMBOLS
        return torch.where(hits_BT, 0.5, 4.0), hits_BT

    def token_losses(self, tokens_BT):
        return self.token_predictions(tokens_BT)[0]


def recall(model, length, tmp_path, texts=20, ids=IDS):
    starts = text_starts(len(ids), length, texts)
    found = []
    for name, windows in zip("ab", copy_windows(ids, length, starts), strict=True):
        with PartialLosses(tmp_path / f"{length}{name}") as kept:
            found.append(
                last_losses(
                    lambda: (model, 7),
                    windows,
                    scored_tokens(length),
                    kept,
                    with_hits=True,
                    device=CPU,
                    progress=lambda done, total: None,
                )
            )
    return Recall.of(*found)


def curve_of(model, lengths, tmp_path, **asked):
    return forgetting_curve({n: recall(model, n, tmp_path, **asked) for n in lengths}, 0)


@pytest.mark.parametrize("reach", [8, 13, 32])
def test_a_perfect_copier_of_the_last_m_tokens_has_a_fine_length_of_m(reach, tmp_path):
    lengths = (8, reach, reach + 1, 40) if reach > 8 else (8, 9, 40)
    curve = curve_of(Copier(reach), lengths, tmp_path)
    assert (curve.fine.value, curve.fine.low, curve.fine.high) == (reach, reach, reach)
    assert curve.coarse == reach
    for point in curve.points:
        assert point.copy_accuracy.value == (point.length <= reach)
        assert point.other_accuracy.value < 0.1


def test_values_are_those_of_the_windows_by_loops(tmp_path):
    model, length = Copier(9), 9
    curve = curve_of(model, [length], tmp_path)
    hits, nats, differences = [0.0, 0.0], [0.0, 0.0], []
    starts = [index * 200 for index in range(20)]
    for index, start in enumerate(starts):
        text = IDS[start : start + length]
        other = IDS[starts[(index + 10) % 20] :][:length]
        means: list[float] = []
        for kind, first in enumerate((text, other)):
            window = torch.tensor(np.concatenate([first, text]))[None]
            losses, right = model.token_predictions(window)
            scored = range(length + length // 2 - 1, 2 * length - 1)
            means.append(sum(float(right[0, column]) for column in scored) / 5)
            hits[kind] += means[-1] / 20
            nats[kind] += sum(float(losses[0, column]) for column in scored) / 5 / 20
        differences.append(means[0] - means[1])
    (point,) = curve.points
    assert point.copy_accuracy.value == pytest.approx(hits[0], abs=1e-9)
    assert point.other_accuracy.value == pytest.approx(hits[1], abs=1e-9)
    assert point.loss_gain.value == pytest.approx(nats[1] - nats[0], abs=1e-9)
    assert point.p == paired_p(np.array(differences))


def test_what_only_the_last_token_tells_is_no_recall(tmp_path):
    ids = np.where(np.random.default_rng(1).random(4000) < 0.7, 1, 7).cumsum() % SYMBOLS
    curve = curve_of(Bigram(), (8, 16, 32), tmp_path, ids=ids)
    assert (curve.fine.value, curve.coarse) == (0, 0)
    for point in curve.points:
        assert point.copy_accuracy.value == point.other_accuracy.value > 0.5
        assert point.loss_gain.value == 0
        assert point.p == 1


def test_an_interrupted_pass_goes_on_and_a_whole_one_reads_nothing(tmp_path):
    model = Copier(8)
    whole = recall(model, 8, tmp_path)
    assert model.seen == 40
    again = recall(model, 8, tmp_path)
    assert model.seen == 40
    assert np.array_equal(whole.hits, again.hits)
    file = tmp_path / "8a"
    file.write_bytes(file.read_bytes()[: 5 * 4 * 2 * 4 + 3])  # five texts and a part of the sixth
    once_more = recall(model, 8, tmp_path)
    assert model.seen == 55
    assert np.array_equal(whole.losses, once_more.losses)


def test_a_model_that_does_not_tell_its_choice_is_refused(tmp_path):
    class Dumb:
        def token_losses(self, tokens_BT):
            return torch.zeros(tokens_BT[:, 1:].shape)

    with pytest.raises(UserError, match="does not tell which tokens it would have chosen"):
        recall(Dumb(), 8, tmp_path)


def test_windows_of_several_lengths_are_those_read_alone(tmp_path):
    windows = [IDS[k : k + 5 + k % 7].copy() for k in range(30)]
    with PartialLosses(tmp_path / "kept") as kept:
        found = last_losses(
            lambda: (Copier(6), 4), windows, 1, kept, device=CPU, progress=lambda *_: None
        )
    alone = [Copier(6).token_losses(torch.tensor(w)[None])[0, -1].item() for w in windows]
    assert found[:, 0, 0].tolist() == alone


def test_texts_do_not_overlap():
    for tokens, length, texts in [(4000, 8, 40), (1000, 100, 40), (99, 100, 40)]:
        starts = text_starts(tokens, length, texts)
        assert len(starts) == min(texts, tokens // length)
        assert (np.diff(starts) >= length).all()
        assert not len(starts) or starts[-1] + length <= tokens


# Simulations: texts whose chance of a copied token is drawn


def simulated_recall(random, chance, texts=40, scored=32, base=0.1):
    """Accuracy varies from text to text with mean `chance`; without recall both are alike."""
    rates = [random.beta(8 * mean, 8 * (1 - mean), (texts, 1)) for mean in (chance, base)]
    hits = np.stack([random.random((texts, scored)) < rate for rate in rates]).mean(axis=2)
    return Recall(hits, 3.0 - hits + 0.1 * random.standard_normal(hits.shape))


def test_intervals_cover_the_truth_at_their_rate():
    def covered(random):
        recalls = {16: simulated_recall(random, 0.6)}
        (point,) = forgetting_curve(recalls, int(random.integers(1 << 30))).points
        return (
            holds(point.copy_accuracy, 0.6),
            holds(point.other_accuracy, 0.1),
            holds(point.accuracy_gain, 0.5),
            holds(point.loss_gain, 0.5),
        )

    assert_nominal(simulated(covered))


def test_noise_has_no_coarse_length(monkeypatch):
    """Of six lengths together at most one in twenty, within the error of 200 simulations."""
    monkeypatch.setattr(forgetting, "RESAMPLES", 20)

    def found(random):
        recalls = {n: simulated_recall(random, 0.1) for n in (8, 16, 32, 64, 128, 256)}
        return forgetting_curve(recalls, 0).coarse > 0

    assert simulated(found).mean() <= 0.08


def test_p_is_that_of_a_t_test():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(2).normal(0.3, 1.0, 25)
    assert paired_p(values) == pytest.approx(
        ttest_1samp(values, 0, alternative="greater").pvalue, abs=1e-12
    )
    assert paired_p(np.full(5, 0.5)) == 0
    assert paired_p(np.zeros(5)) == paired_p(np.full(5, -1.0)) == 1


def test_a_lead_fills_memory_and_is_the_same_before_both_texts():
    ids = np.arange(100)
    starts = np.array([0, 50, 90])
    copies, others = copy_windows(ids, 4, starts, lead=8)
    for start, copy, other in zip(starts, copies, others, strict=True):
        lead = (start + 25 + np.arange(8)) % 100
        assert copy.tolist() == [*lead, *ids[start : start + 4], *ids[start : start + 4]]
        assert other[:8].tolist() == lead.tolist()
        assert other[12:].tolist() == copy[12:].tolist()
        assert not set(other[8:12]) & set(other[12:])

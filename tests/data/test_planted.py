"""The corpus `planted`: computed, the same everywhere, its streams in step with positions.

The planted process: its best loss against brute force over all sequences.
"""

import itertools
import math

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.run_config import CorpusConfig
from txlbench.data.planted import PROCESS, Planted, PlantedProcess
from txlbench.data.prepare import prepare
from txlbench.errors import UserError

CONFIG = CorpusConfig(name="planted")


def test_the_corpus_is_what_the_catalogue_says_and_bit_for_bit_the_published_one():
    corpus = prepare(CONFIG)  # compares the checksum of what was computed
    facts = CORPORA["planted"]
    assert corpus.tokens == facts.tokens
    assert len(corpus.vocabulary) == facts.vocabulary_size == sum(PROCESS.alphabets)
    assert corpus.warnings == ()


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_split_is_a_sequence_of_the_process_that_begins_with_stream_0(split):
    corpus = prepare(CONFIG)
    ids, sequence = corpus.ids(split), PROCESS.sequence(corpus.tokens[split], Planted.SEEDS[split])
    pairs = set(zip(ids.tolist(), sequence.tolist(), strict=True))
    assert len(pairs) == 44  # a renaming of the symbols
    positions = np.arange(288, len(ids))
    for context in (32, 288):
        by_ids = PROCESS.losses(ids, positions, np.int64(context))
        assert np.array_equal(by_ids, PROCESS.losses(sequence, positions, np.int64(context)))


def test_the_true_relative_effective_context_length_is_224():
    """By the paper's walk over the exact losses: the mean over the hardest r of the tokens."""
    corpus = prepare(CONFIG)
    ids, contexts = corpus.ids("test"), [32, 96, 160, 224, 288]
    positions = 288 + np.arange(5000)
    losses = PROCESS.losses(ids, positions[None], np.array(contexts)[:, None])
    for r in (0.1, 0.5, 1.0):
        count = int(np.ceil(r * 5000 - 1e-9))
        for step in range(4):
            short, long = losses[step], np.minimum(losses[step], losses[step + 1])
            hardest = np.argsort(-short, kind="stable")[:count]
            gain = 1 - np.exp(long[hardest].mean() - short[hardest].mean())
            assert (gain >= 0.01) == (contexts[step] < 224), (r, contexts[step], gain)


def test_a_file_in_its_place_is_refused(tmp_path):
    with pytest.raises(UserError, match="planted is computed; drop"):
        prepare(CONFIG, from_file=tmp_path)


TINY = PlantedProcess(lags=(2, 6), alphabets=(2, 3), repeats=0.7)
LENGTH = 8
DEFAULT = PlantedProcess()


def probability(sequence):
    """Of a whole sequence, from the definition: repeat with p, else uniform."""
    result = 1.0
    for t, symbol in enumerate(sequence):
        stream = t % 2
        size, parent = TINY.alphabets[stream], t - TINY.lags[stream]
        result *= 1 / size if parent < 0 else 0.3 / size + 0.7 * (symbol == sequence[parent])
    return result


@pytest.fixture(scope="module")
def law():
    """Every sequence with its probability."""
    alphabets = [(0, 1), (2, 3, 4)] * (LENGTH // 2)
    table = {each: probability(each) for each in itertools.product(*alphabets)}
    assert math.isclose(sum(table.values()), 1)
    return table


@pytest.mark.parametrize("t", [1, 4, 6, 7])
def test_the_loss_is_the_conditional_entropy_given_exactly_the_context(law, t):
    """For each sequence -log p(x_t | the c tokens before it), everything else summed over."""
    for context in range(1, t + 1):
        joint, before = {}, {}
        for sequence, weight in law.items():
            seen = sequence[t - context : t]
            before[seen] = before.get(seen, 0) + weight
            joint[seen, sequence[t]] = joint.get((seen, sequence[t]), 0) + weight
        for sequence in list(law)[:: len(law) // 50]:
            seen = sequence[t - context : t]
            expected = -math.log(joint[seen, sequence[t]] / before[seen])
            found = TINY.losses(np.array(sequence), np.array([t]), np.array([context]))
            assert found[0] == pytest.approx(expected, abs=1e-12)


def test_the_sequence_follows_the_law():
    sequence = DEFAULT.sequence(400_000, seed=9)
    first = 0
    for stream, (lag, size) in enumerate(zip(DEFAULT.lags, DEFAULT.alphabets, strict=True)):
        own = sequence[stream::4]
        assert set(own) == set(range(first, first + size))
        back = lag // 4
        agree = np.mean(own[back:] == own[:-back])
        assert agree == pytest.approx(0.95 + 0.05 / size, abs=0.004)
        other = np.mean(own[back - 1 :] == own[: 1 - back])
        assert other == pytest.approx(1 / size, abs=0.03)
        first += size


def test_the_mean_loss_is_the_mean_of_the_bounds():
    """The empirical mean meets the entropies of the four streams, seen or unseen."""
    ids, p = DEFAULT.sequence(200_000, seed=4), DEFAULT.repeats
    positions = np.arange(300, 200_000)
    for context in (1, 16, 71, 72, 135, 136, 199, 200, 288):
        bounds = []
        for lag, size in zip(DEFAULT.lags, DEFAULT.alphabets, strict=True):
            hit, miss = (1 - p) / size + p, (1 - p) / size
            seen = -hit * math.log(hit) - (size - 1) * miss * math.log(miss)
            bounds.append(seen if lag <= context else math.log(size))
        found = DEFAULT.losses(ids, positions, np.int64(context)).mean()
        assert found == pytest.approx(np.mean(bounds), rel=0.02)


def test_names_of_symbols_do_not_matter_and_shapes_broadcast():
    ids = DEFAULT.sequence(1000, seed=2)
    names = np.random.default_rng(1).permutation(44).astype(np.uint8)
    positions, contexts = np.arange(300, 900, 7), np.array([32, 96, 288])
    losses = DEFAULT.losses(ids, positions[None, :], contexts[:, None])
    assert losses.shape == (3, len(positions))
    renamed = DEFAULT.losses(names[ids], positions[None, :], contexts[:, None])
    assert np.array_equal(losses, renamed)


def test_sequences_are_reproducible_and_differ_by_seed():
    assert np.array_equal(DEFAULT.sequence(500, 1), DEFAULT.sequence(500, 1))
    assert not np.array_equal(DEFAULT.sequence(500, 1), DEFAULT.sequence(500, 2))


@pytest.mark.parametrize("length", [0, 1, 3, 15, 16, 17, 201])
def test_any_length_is_possible(length):
    sequence = DEFAULT.sequence(length, seed=1)
    assert len(sequence) == length
    bounds = np.cumsum((0, *DEFAULT.alphabets))
    streams = np.arange(length) % 4
    assert (sequence >= bounds[streams]).all()
    assert (sequence < bounds[streams + 1]).all()

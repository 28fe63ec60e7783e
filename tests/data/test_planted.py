"""The corpus `planted`: computed, the same everywhere, its streams in step with positions."""

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.corpus import CorpusConfig
from txlbench.data.planted import PROCESS, SEEDS
from txlbench.data.preparation import prepare
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
    ids, sequence = corpus.ids(split), PROCESS.sequence(corpus.tokens[split], SEEDS[split])
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

"""One Billion Word: its vocabulary file, one held-out file for both, `<S>` once or twice."""

import dataclasses
import random

import numpy as np
import pytest

from txlbench.config.run_config import CorpusConfig
from txlbench.data.lm1b import FOLDER, BillionWords
from txlbench.data.prepare import prepare
from txlbench.errors import UserError

WORDS = ["</S>", "<S>", "<UNK>", "the", "a", "cat", "dog", ".", "sat", "the"]
HELD_OUT = "the cat sat .\na zebra sat .\nthe dog .\n"
PARTS = {n: "".join(f"a dog {n} cat {k} .\n" for k in range(5)) for n in range(1, 100)}
VOCABULARY = 9


def members(parts=PARTS):
    train, held_out = (
        "training-monolingual.tokenized.shuffled",
        "heldout-monolingual.tokenized.shuffled",
    )
    texts = {f"{FOLDER}/{train}/news.en-{n:05d}-of-00100": text for n, text in parts.items()}
    texts |= {f"{FOLDER}/{held_out}/news.en.heldout-{n:05d}-of-00050": HELD_OUT for n in (0, 1)}
    return {name: text.encode() for name, text in texts.items()}


@pytest.fixture
def packed(archive, published, tmp_path):
    """The archive, with the vocabulary file beside it."""
    shuffled = list(members().items())
    random.Random(1).shuffle(shuffled)  # The order in an archive means nothing.
    path = archive(f"{FOLDER}.tar.gz", dict(shuffled))
    (tmp_path / "1b_word_vocab.txt").write_text("".join(f"{word} 7\n" for word in WORDS))
    for name in ("lm1b", "lm1b-tf"):
        published(name, path, vocabulary_size=VOCABULARY)
    return path


def sentences(text):
    return [line for line in text.split("\n") if line]


def test_the_vocabulary_is_that_of_its_file_in_its_order(packed, prepared):
    assert prepared("lm1b", packed).vocabulary.symbols == (
        *("</S>", "<eos>", "<unk>", "the", "a", "cat", "dog", ".", "sat"),
    )


def test_one_s_stands_between_two_sentences(packed, prepared, texts):
    corpus = prepared("lm1b", packed)
    assert texts(corpus)[1] == "\nthe cat sat .\na <unk> sat .\nthe dog .\n"
    assert corpus.tokens == {"train": 1 + 99 * 5 * 7, "valid": 15, "test": 15}


def test_the_tensorflow_stream_has_one_more_at_every_boundary(packed, prepared, texts):
    corpus = prepared("lm1b-tf", packed)
    assert texts(corpus)[1] == "\nthe cat sat .\n\na <unk> sat .\n\nthe dog .\n"
    ids = corpus.ids("test")
    assert int(((ids[1:] == 1) & (ids[:-1] == 1)).sum()) == 2
    assert corpus.tokens["train"] == 99 * 5 * 8


def test_both_streams_say_how_many_predictions_of_s_after_s_there_are(packed, prepared):
    once, twice = prepared("lm1b", packed).warnings, prepared("lm1b-tf", packed).warnings
    assert "test has 2 predictions of <S> after <S>, which are nearly free" in twice
    assert "test has no predictions of <S> after <S>; lm1b-tf adds 2, nearly free" in once


def test_valid_and_test_are_one_file_which_is_warned_about(packed, prepared):
    corpus = prepared("lm1b", packed)
    assert np.array_equal(corpus.ids("valid"), corpus.ids("test"))
    assert "valid and test are identical; numbers on them are not independent" in corpus.warnings
    assert any("no checksum of 1b_word_vocab.txt is known" in line for line in corpus.warnings)


def test_words_that_are_not_in_the_file_are_unk_in_train_too(packed, prepared):
    corpus = prepared("lm1b", packed)
    assert int((corpus.ids("train") == 2).sum()) == 99 * 5 * 2
    assert not any("never trained" in warning for warning in corpus.warnings)


def test_train_is_shuffled_by_files_and_within_them_and_loses_nothing(
    packed, published, prepared, texts, tmp_path
):
    numbers = [str(n) for n in range(100)]
    (tmp_path / "1b_word_vocab.txt").write_text("\n".join([*WORDS, *numbers]))
    published("lm1b", packed)
    made = sentences(texts(prepared("lm1b", packed))[0])
    expected = [line for text in PARTS.values() for line in sentences(text)]
    assert sorted(made) == sorted(expected)
    files = [line.split()[2] for line in made]
    assert files == [name for name in files[::5] for _ in range(5)]  # A file stays together.
    assert files[::5] != sorted(files[::5], key=int)
    inside = [tuple(line.split()[4] for line in made[k : k + 5]) for k in range(0, len(made), 5)]
    assert len(set(inside)) > 20


def test_the_order_is_always_the_same(packed, prepared, texts, tmp_path):
    one = texts(prepared("lm1b", packed))[0]
    folder = tmp_path / "unpacked"
    for name, content in members().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "1b_word_vocab.txt").write_text("\n".join(WORDS))
    prepared("lm1b", packed).directory.rename(tmp_path / "away")
    corpus = prepared("lm1b", folder)
    assert texts(corpus)[0] == one
    assert all((folder / name).exists() for name in members())
    assert any("not verified by a checksum" in warning for warning in corpus.warnings)


def test_another_vocabulary_file_is_refused_before_anything_is_encoded(packed, prepared, tmp_path):
    path = tmp_path / "1b_word_vocab.txt"
    path.write_text("\n".join(WORDS[:5]))
    with pytest.raises(UserError, match=f"{path}: 5 symbols, 9 are published"):
        prepared("lm1b", packed)


def test_without_the_vocabulary_nothing_else_is_fetched(monkeypatch):
    nowhere = dataclasses.replace(BillionWords.words, addresses=("http://127.0.0.1:9/x",))
    monkeypatch.setattr(BillionWords, "words", nowhere)
    message = r"cannot fetch 1b_word_vocab\.txt \(no SHA-256 known\).*put it beside .*--from-file"
    with pytest.raises(UserError, match=message):
        prepare(CorpusConfig(name="lm1b"))


def test_a_missing_part_of_train_is_refused(archive, published, prepared, packed):
    path = archive(f"{FOLDER}.tar.gz", members({n: PARTS[n] for n in PARTS if n != 42}))
    published("lm1b", path, vocabulary_size=VOCABULARY)
    with pytest.raises(UserError, match=r"lacks .*news\.en-00042-of-00100"):
        prepared("lm1b", path)

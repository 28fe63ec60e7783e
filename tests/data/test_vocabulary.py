"""Vocabularies order their symbols, encode and decode, and come back from disk unchanged."""

import tracemalloc

import numpy as np
import pytest

from txlbench.data.text import TextPart
from txlbench.data.vocabulary import ByteVocabulary, CharVocabulary, WordVocabulary, load_vocabulary
from txlbench.errors import UserError


def learned(kind, *pieces):
    return kind.from_counts(kind.count(pieces))


def test_words_go_by_frequency_then_first_occurrence_with_eos_first():
    vocabulary = learned(WordVocabulary, "b a c a\n", "c d\nd b b\n")
    assert vocabulary.symbols == ("<eos>", "b", "a", "c", "d")


def test_eos_is_a_symbol_even_if_it_is_rare():
    assert learned(WordVocabulary, "x x").symbols == ("<eos>", "x")


def test_characters_go_by_frequency_then_first_occurrence():
    assert learned(CharVocabulary, "bca", "ca\n\n").symbols == ("c", "a", "\n", "b")


def test_bytes_are_all_256_values_each_its_own_id():
    vocabulary = ByteVocabulary.full()
    assert len(vocabulary) == 256
    assert vocabulary.encode("é\n").tolist() == [0xC3, 0xA9, 0x0A]
    assert vocabulary.decode([0xC3, 0xA9, 0x0A]) == "é\n"
    assert vocabulary.decode([0x61, 0xFF]) == "a\ufffd"


@pytest.mark.parametrize(
    ("vocabulary", "text"),
    [
        (ByteVocabulary.full(), "any 語 text\r\n"),
        (learned(CharVocabulary, "abc \n語"), "cab 語\n\n"),
        (learned(WordVocabulary, "one two\n"), "one two\n\ntwo\none"),
        (learned(WordVocabulary, "one two\n"), "\none\n"),
    ],
)
def test_decoding_undoes_encoding(vocabulary, text):
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_an_unknown_symbol_is_refused_by_name_where_there_is_no_unk():
    with pytest.raises(UserError, match="'z' is not in the vocabulary of 3 symbols"):
        learned(WordVocabulary, "x y").encode("x z y")
    with pytest.raises(UserError, match="'語'"):
        learned(CharVocabulary, "xy").encode("x語")


@pytest.mark.parametrize("kind", [CharVocabulary, WordVocabulary])
def test_unknown_symbols_become_unk(kind):
    vocabulary = learned(kind, "x").with_unknown()
    assert vocabulary.symbols[-1] == "<unk>"
    assert vocabulary.encode("z").tolist() == [len(vocabulary) - 1]
    assert vocabulary.with_unknown() is vocabulary


def test_unk_that_the_training_text_contains_is_used():
    vocabulary = learned(WordVocabulary, "the <unk> <unk>")
    assert vocabulary.with_unknown().symbols == ("<eos>", "<unk>", "the")


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, "u1"), (256, "u1"), (257, "<u2"), (65536, "<u2"), (65537, "<u4")]
)
def test_the_smallest_type_holds_every_id(size, dtype):
    assert WordVocabulary(map(str, range(size))).dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    "vocabulary",
    [ByteVocabulary.full(), CharVocabulary('a\n"語'), WordVocabulary(["<eos>", "żółć"])],
)
def test_saved_vocabularies_come_back(tmp_path, vocabulary):
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    loaded = load_vocabulary(path)
    assert type(loaded) is type(vocabulary)
    assert loaded.symbols == vocabulary.symbols
    assert loaded.fingerprint == vocabulary.fingerprint


def test_fingerprints_tell_symbols_order_and_level_apart():
    assert len({
        CharVocabulary("ab").fingerprint,
        CharVocabulary("ba").fingerprint,
        CharVocabulary("abc").fingerprint,
        WordVocabulary("ab").fingerprint,
    }) == 4  # fmt: skip


@pytest.mark.parametrize("content", ["[]", "{}", '{"level": "line", "symbols": []}', "{"])
def test_other_files_are_not_vocabularies(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"vocabulary\.json: not a"):
        load_vocabulary(path)


def peak_of_counting(path, megabytes):
    line = " ".join(f"word{n}" for n in range(1000))
    path.write_text((line + " ") * (megabytes * 2**20 // len(line)))
    tracemalloc.start()
    WordVocabulary.count(TextPart(path).pieces("word"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_counting_needs_no_more_memory_for_a_longer_text_even_in_one_line(tmp_path):
    path = tmp_path / "text.txt"
    assert peak_of_counting(path, 4) < 1.1 * peak_of_counting(path, 1)

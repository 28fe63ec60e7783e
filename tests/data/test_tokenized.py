"""Texts of corpora, and their tokens by byte: exact, cut at whole characters, and kept."""

import numpy as np
import pytest

from txlbench.config.run_config import CorpusConfig
from txlbench.data import tokenized as module
from txlbench.data.prepare import prepare
from txlbench.data.tokenized import VocabularyTokenizer, shared_text, tokenized
from txlbench.data.vocabulary import ByteVocabulary, CharVocabulary, WordVocabulary
from txlbench.errors import UserError

TEXT = "Zoë said: “naïve 😀 café”\r\nпривет, мир\n\n日本語 の テキスト\r\n"  # noqa: RUF001


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    return tmp_path


def corpus(folder, content, level="byte", name="mine"):
    path = folder / f"{name}.txt"
    path.write_bytes(content)
    return prepare(CorpusConfig(name=name, path=str(path), level=level))


def tokenizer(vocabulary):
    return VocabularyTokenizer(vocabulary, "model")


class Halves:
    """Cuts a text into tokens of two bytes, and counts how often it is asked to."""

    bos, prefix, unknown, fingerprint = None, 0, 7, "halves"

    def __init__(self):
        self.calls = 0

    def encode(self, text):
        self.calls += 1
        ends = np.union1d(np.arange(2, len(text.encode()), 2), [len(text.encode())])
        return np.arange(len(ends)) % 9, ends


def test_a_text_of_bytes_is_the_files_bytes(folder):
    found = corpus(folder, (TEXT * 20).encode())
    assert found.text("all") == (TEXT * 20).encode()
    assert found.text("train") + found.text("valid") + found.text("test") == found.text("all")


def test_bytes_that_are_no_text_come_out_too(folder):
    content = bytes(range(256)) * 10
    assert corpus(folder, content).text("all") == content


def test_a_text_of_characters_has_lf_and_of_words_single_spaces(folder):
    content = ("one  two\r\nthree\n" * 60).encode()
    characters = corpus(folder, content, "char", "characters")
    assert characters.text("all") == ("one  two\nthree\n" * 60).encode()
    words = corpus(folder, content, "word", "words")
    assert words.text("all") == ("one two\nthree\n" * 60).encode()
    assert shared_text(words, "all").joined
    assert not shared_text(characters, "all").joined


def test_a_split_that_cuts_characters_is_read_in_whole_ones(folder):
    found = corpus(folder, ("日本" * 101).encode() + b"ab")  # 608 bytes: cut at 547 and 577
    parts = [shared_text(found, split) for split in ("train", "valid", "test")]
    for part in parts:
        part.content.decode()
    assert sum(part.left_out for part in parts) > 0
    assert [len(found.text(part.split)) - len(part.content) for part in parts] == [
        part.left_out for part in parts
    ]


def test_what_is_not_utf8_is_refused_with_its_place(folder):
    found = corpus(folder, b"abc\xff" + b"d" * 400)
    with pytest.raises(UserError, match="mine: byte 3 of all: 0xff is not UTF-8"):
        shared_text(found, "all")


@pytest.mark.parametrize("make", [ByteVocabulary, CharVocabulary], ids=lambda kind: kind.level)
def test_bytes_and_characters_end_where_utf8_says(make):
    full = make is ByteVocabulary
    vocabulary = make.full() if full else make.from_counts(make.count([TEXT]))
    ids, ends = tokenizer(vocabulary).encode(TEXT)
    pieces = list(TEXT.encode()) if full else [character.encode() for character in TEXT]
    lengths = [1] * len(pieces) if full else [len(piece) for piece in pieces]
    assert ends.tolist() == np.cumsum(lengths).tolist()
    assert len(ids) == len(ends)
    assert tokenizer(vocabulary).decode(ids) == TEXT


def test_words_take_the_space_before_them_along():
    text = "the café\nthe end\n\n"
    words = tokenizer(WordVocabulary.from_counts(WordVocabulary.count([text])))
    ids, ends = words.encode(text)
    content = text.encode()
    pieces = [content[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]
    assert pieces == ["the", " café", "\n", "the", " end", "\n", "\n"]
    assert words.decode(ids) == text


def test_words_do_not_give_back_other_whitespace():
    words = tokenizer(WordVocabulary(["<eos>", "a", "b"]))
    with pytest.raises(UserError, match="do not give the text back"):
        words.encode("a  b\n")


def test_unknown_symbols_are_counted(folder):
    text = shared_text(corpus(folder, b"abcabz" * 80), "all")
    found = tokenized(text, tokenizer(CharVocabulary(["a", "b", "c", "<unk>"])))
    assert found.unknown == 80
    assert found.ends[-1] == 480


def test_the_number_of_tokens_before_a_boundary_leaves_no_token_out():
    text = module.TokenizedText(np.arange(4), np.array([0, 2, 2, 5]))  # two of them empty
    assert text.index(np.array([0, 2, 5])).tolist() == [1, 3, 4]


def test_ids_of_a_pretrained_tokenizer_are_kept(folder):
    text, halves = shared_text(corpus(folder, b"memory " * 60), "all"), Halves()
    first, second = tokenized(text, halves), tokenized(text, halves)
    assert halves.calls == 1
    assert first.ids.tolist() == second.ids.tolist()
    assert first.ends.tolist() == second.ends.tolist()
    assert first.unknown == second.unknown > 0
    (kept,) = (folder / "data/tokenized").iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    assert tokenized(text, halves).ids.tolist() == first.ids.tolist()
    assert halves.calls == 2
    other = shared_text(corpus(folder, b"memory! " * 60, name="other"), "all")
    tokenized(other, halves)
    assert halves.calls == 3


@pytest.mark.parametrize(
    ("vocabulary", "prefix"),
    [
        (ByteVocabulary.full(), 10),
        (CharVocabulary("ab\n"), 2),
        (WordVocabulary(["<eos>", "a"]), 0),
        (CharVocabulary("ab"), 0),
    ],
)
def test_a_newline_stands_before_a_text(vocabulary, prefix):
    assert tokenizer(vocabulary).prefix == prefix

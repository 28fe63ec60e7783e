"""text8 is letters and spaces, without the spaces at the edges of a split.

enwik8 is a stream of bytes; its official form is the same stream without newlines.

The sample of Wikipedia is found, checked and split without a network and without gensim.
"""

import bz2
import hashlib
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.run_config import CorpusConfig
from txlbench.data import wikipedia
from txlbench.data.prepare import prepare
from txlbench.data.wikipedia import Enwik8, OfficialEnwik8, Text8
from txlbench.errors import UserError


@pytest.fixture
def corpus(archive, published, prepared, monkeypatch):
    def corpus(text, sizes):
        path = archive("text8.zip", {"text8": text})
        published("text8", path)
        monkeypatch.setattr(Text8, "sizes", sizes)
        return prepared("text8", path)

    return corpus


def test_the_splits_are_stripped_as_by_the_official_preparation(corpus, texts):
    made = corpus(b" anarchism as a term abuse  ", (10, 10, 8))
    assert texts(made) == ["anarchism", "as a term", "abuse"]
    assert made.tokens == {"train": 9, "valid": 9, "test": 5}


def test_the_vocabulary_is_that_of_all_splits_by_frequency(corpus):
    vocabulary = corpus(b"bb a a zz", (3, 3, 3)).vocabulary
    assert vocabulary.symbols == ("b", "a", "z", " ")
    assert vocabulary.level == "char"


def test_the_vocabulary_of_letters_and_space_has_27_symbols(corpus, published):
    letters = b"the quick brown fox jumps over a lazy dog "
    assert len(corpus(letters * 3, (42, 42, 42)).vocabulary) == 27


TEXT = ("<page>\n  <title>Zo\u00eb</title>\n\n" * 40).encode()[:1000]
SIZES = (900, 60, 40)


@pytest.fixture
def zipped(archive, published, monkeypatch):
    """A zip of a thousand bytes in the place of the real one."""
    path = archive("enwik8.zip", {"enwik8": TEXT})
    for source in (Enwik8, OfficialEnwik8):
        published(source.name, path)
        monkeypatch.setattr(source, "sizes", SIZES)
        monkeypatch.setattr(source, "text_sha256", hashlib.sha256(TEXT).hexdigest())
    return path


def parts(text):
    return [text[:900], text[900:960], text[960:]]


def stored(corpus):
    return [corpus.ids(split) for split in ("train", "valid", "test")]


def test_the_splits_are_consecutive_bytes_and_every_byte_is_its_own_id(zipped, prepared):
    corpus = prepared("enwik8", zipped)
    assert [ids.tobytes() for ids in stored(corpus)] == parts(TEXT)
    assert len(corpus.vocabulary) == 256
    assert corpus.warnings == ()


def test_the_official_stream_has_no_newlines_and_is_cut_before_they_go(zipped, prepared, texts):
    corpus = prepared("enwik8-official", zipped)
    expected = [part.replace(b"\n", b"") for part in parts(TEXT)]
    assert list(corpus.tokens.values()) == [len(part) for part in expected]
    assert [text.encode() for text in texts(corpus)] == expected


def test_the_official_vocabulary_is_what_occurs_by_frequency(zipped, prepared):
    corpus = prepared("enwik8-official", zipped)
    seen = set(TEXT) - {ord("\n")}
    assert {ord(symbol) for symbol in corpus.vocabulary.symbols} == seen
    counts = np.bincount(np.concatenate(stored(corpus)), minlength=len(seen))
    assert (np.diff(counts) <= 0).all()


def test_a_symbol_that_train_lacks_is_in_the_official_vocabulary(
    archive, published, prepared, zipped, monkeypatch
):
    path = archive("enwik8.zip", {"enwik8": TEXT[:-1] + b"~"})
    published("enwik8-official", path)
    corpus = prepared("enwik8-official", path)
    assert "~" in corpus.vocabulary.index
    assert corpus.unknown == {"valid": 0, "test": 0}


def test_the_two_streams_are_prepared_beside_each_other(zipped, prepared):
    true, official = prepared("enwik8", zipped), prepared("enwik8-official", zipped)
    assert true.checksum == official.checksum
    assert true.directory != official.directory
    assert official.split_rule == "90M/5M/5M, no newlines"


def test_the_unpacked_text_serves_as_well(zipped, prepared, tmp_path):
    (tmp_path / "enwik8").write_bytes(TEXT)
    assert prepared("enwik8", tmp_path / "enwik8").tokens["train"] == 900


def test_another_text_is_refused_by_its_checksum(zipped, prepared, tmp_path):
    (tmp_path / "enwik8").write_bytes(TEXT[:-1] + b"x")
    with pytest.raises(UserError, match=r"enwik8: SHA-256 is .*, not "):
        prepared("enwik8", tmp_path / "enwik8")


def test_a_folder_with_a_text_of_another_size_is_refused(zipped, prepared, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "enwik8").write_bytes(TEXT + b"more")
    with pytest.raises(UserError, match="enwik8: 1,004 bytes, not 1,000; get it again"):
        prepared("enwik8", folder)


def test_the_real_sizes_are_those_of_the_paper():
    assert OfficialEnwik8.sizes == Enwik8.sizes == (90_000_000, 5_000_000, 5_000_000)


CONFIG = CorpusConfig(name="enwiki-sample")


def test_the_sample_is_what_the_catalogue_says_and_needs_no_network(monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    corpus = prepare(CONFIG)
    facts = CORPORA["enwiki-sample"]
    assert len(corpus.vocabulary) == facts.vocabulary_size == 256
    assert corpus.tokens["train"] == facts.train_tokens
    assert sum(corpus.tokens.values()) == 6_089_746
    content = b"".join(corpus.ids(split).tobytes() for split in ("train", "valid", "test"))
    assert hashlib.sha256(content).hexdigest() == corpus.checksum
    assert corpus.warnings == ()


def test_the_shuffled_sample_has_the_sentences_of_each_split_in_another_order():
    plain, shuffled = prepare(CONFIG), prepare(CorpusConfig(name="enwiki-shuffled"))
    assert shuffled.tokens == plain.tokens == CORPORA["enwiki-shuffled"].tokens
    assert shuffled.checksum != plain.checksum
    for split in ("train", "valid", "test"):
        before, after = (corpus.ids(split).tobytes() for corpus in (plain, shuffled))
        sentences = wikipedia.SENTENCE_ENDS.split(before)
        assert b"".join(sentences) == before != after
        longest = max(sentences, key=len)
        assert after.count(longest) == before.count(longest) == 1
        assert (np.bincount([*before]) == np.bincount([*after])).all()


def test_neither_gensim_nor_torch_is_imported():
    code = (
        "import sys; from txlbench.config.run_config import CorpusConfig; "
        "from txlbench.data.prepare import prepare; "
        "prepare(CorpusConfig(name='enwiki-sample')); "
        "print(sorted({'gensim', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(wikipedia, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gensim package is missing; pip install 'txlbench\[samp"):
        prepare(CONFIG)


def test_a_package_without_the_file_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(wikipedia, "FILE", "other.bz2")
    with pytest.raises(UserError, match=r"gensim lacks other\.bz2; pip install"):
        prepare(CONFIG)


@pytest.fixture
def small(monkeypatch):
    """A short text in the sample's place."""
    content = b"<page>" * 100
    monkeypatch.setattr(wikipedia, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(wikipedia, "find_spec", lambda name: None)
    return content


@pytest.mark.parametrize("compress", [bytes, bz2.compress])
def test_a_copy_of_the_file_serves_compressed_or_not(tmp_path, small, compress):
    path = Path(tmp_path, "copy")
    path.write_bytes(compress(small))
    assert prepare(CONFIG, from_file=path).tokens["train"] == 540
    assert prepare(CONFIG).tokens["train"] == 540  # the file is no longer needed


def test_another_file_is_refused_by_its_checksum(tmp_path, small):
    path = Path(tmp_path, "copy")
    path.write_bytes(small + b"x")
    found = hashlib.sha256(small + b"x").hexdigest()
    with pytest.raises(UserError, match=f"copy: SHA-256 of the text is {found}.*another copy"):
        prepare(CONFIG, from_file=path)


def test_a_compressed_file_that_ends_early_is_refused(tmp_path, small):
    path = Path(tmp_path, "copy")
    path.write_bytes(bz2.compress(small)[:-5])
    with pytest.raises(UserError, match="copy: the compressed file is damaged; copy it again"):
        prepare(CONFIG, from_file=path)


def test_a_damaged_compressed_file_is_refused(tmp_path, small):
    path = Path(tmp_path, "copy")
    path.write_bytes(b"BZh9 not really")
    with pytest.raises(UserError, match="copy: the compressed file is damaged; copy it again"):
        prepare(CONFIG, from_file=path)


def test_a_missing_copy_is_refused(tmp_path, small):
    with pytest.raises(UserError, match="nowhere: no such file"):
        prepare(CONFIG, from_file=tmp_path / "nowhere")

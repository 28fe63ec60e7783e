"""enwik8 is a stream of bytes; its official form is the same stream without newlines."""

import hashlib

import numpy as np
import pytest

from txlbench.data.enwik8 import Enwik8, OfficialEnwik8
from txlbench.errors import UserError

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

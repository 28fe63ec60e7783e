"""The sample of Wikipedia is found, checked and split without a network and without gensim."""

import bz2
import hashlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.corpus import CorpusConfig
from txlbench.data import enwiki_sample
from txlbench.data.preparation import prepare
from txlbench.errors import UserError

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


def test_neither_gensim_nor_torch_is_imported():
    code = (
        "import sys; from txlbench.config.corpus import CorpusConfig; "
        "from txlbench.data.preparation import prepare; "
        "prepare(CorpusConfig(name='enwiki-sample')); "
        "print(sorted({'gensim', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(enwiki_sample, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gensim package is missing; pip install 'txlbench\[samp"):
        prepare(CONFIG)


def test_a_package_without_the_file_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(enwiki_sample, "FILE", "other.bz2")
    with pytest.raises(UserError, match=r"gensim lacks other\.bz2; pip install"):
        prepare(CONFIG)


@pytest.fixture
def small(monkeypatch):
    """A short text in the sample's place."""
    content = b"<page>" * 100
    monkeypatch.setattr(enwiki_sample, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(enwiki_sample, "find_spec", lambda name: None)
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

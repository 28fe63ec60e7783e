"""The Penn Treebank comes as three texts, in lower case, with the words of all splits."""

import dataclasses
import hashlib

import pytest

from txlbench.config.corpus import CorpusConfig
from txlbench.data.preparation import prepare
from txlbench.data.ptb import PennTreebank
from txlbench.errors import UserError

TEXTS = {
    "train": " pierre <unk> N years old \n mr. <unk> is \n",
    "valid": " a new N \n",
    "test": " no it was n't black monday \n",
}


@pytest.fixture
def archived(archive, published):
    published("ptb", vocabulary_size=16)
    members = {f"./simple-examples/data/ptb.{k}.txt": v.encode() for k, v in TEXTS.items()}
    return archive("simple-examples.tgz", {**members, "./simple-examples/README": b"read me"})


def test_the_archive_of_the_author_serves(archived, prepared, texts):
    corpus = prepared("ptb", archived)
    assert corpus.tokens == {"train": 10, "valid": 4, "test": 7}
    assert texts(corpus)[0] == "pierre <unk> n years old\nmr. <unk> is\n"
    assert corpus.vocabulary.symbols[0] == "<eos>"
    assert {"a", "monday"} < set(corpus.vocabulary.symbols)
    assert corpus.unknown == {"valid": 0, "test": 0}
    assert any("not verified by a checksum" in warning for warning in corpus.warnings)


def test_the_three_texts_are_fetched_and_verified(published, prepared, data_directory, monkeypatch):
    published("ptb", vocabulary_size=16)
    downloads = data_directory / "downloads"
    downloads.mkdir(parents=True)
    fetched = {}
    for split, file in PennTreebank.fetched.items():
        (downloads / file.name).write_text(TEXTS[split])
        sha256 = hashlib.sha256(TEXTS[split].encode()).hexdigest()
        fetched[split] = dataclasses.replace(file, sha256=sha256)
    monkeypatch.setattr(PennTreebank, "fetched", fetched)
    corpus = prepared("ptb", None)
    assert corpus.tokens["train"] == 10
    assert corpus.warnings == ()


def test_a_text_that_cannot_be_fetched_is_named(monkeypatch):
    nowhere = {
        split: dataclasses.replace(file, addresses=("http://127.0.0.1:9/x",))
        for split, file in PennTreebank.fetched.items()
    }
    monkeypatch.setattr(PennTreebank, "fetched", nowhere)
    with pytest.raises(UserError, match=r"ptb\.train\.txt \(SHA-256 fcea919f.*prepare ptb --from"):
        prepare(CorpusConfig(name="ptb"))


def test_another_vocabulary_than_10000_words_is_refused(archived, published, prepared):
    published("ptb", vocabulary_size=10_000)
    with pytest.raises(UserError, match="ptb: 16 symbols, 10,000 are published"):
        prepared("ptb", archived)

"""Published files come from an archive or a folder and have the published checksum and counts.

The Penn Treebank comes as three texts, in lower case, with the words of all splits.

WikiText is taken word for word, with the vocabulary of the official code.
"""

import dataclasses
import hashlib

import pytest

from txlbench.config.catalogue import CORPORA, load_class
from txlbench.config.run_config import CorpusConfig
from txlbench.data import download
from txlbench.data.prepare import find_prepared, prepare
from txlbench.data.published import PennTreebank, PublishedCorpus
from txlbench.errors import UserError

TEXTS = {"train": " \n = A = \n a b \n", "valid": " b a \n", "test": " a \n b \n"}
MEMBERS = {f"wikitext-2/wiki.{split}.tokens": text for split, text in TEXTS.items()}
COUNTS = {"vocabulary_size": 5, "train_tokens": 8, "valid_tokens": 3, "test_tokens": 4}
CONFIG = CorpusConfig(name="wt2")

PUBLISHED = [
    name for name, entry in CORPORA.items() if issubclass(load_class(entry.target), PublishedCorpus)
]


@pytest.fixture
def small(archive, published):
    """A miniature of WikiText-2 in the place of the real one."""
    path = archive("wikitext-2-v1.zip", {k: v.encode() for k, v in MEMBERS.items()})
    published("wt2", path, **COUNTS)
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_corpus_has_a_checksum_and_its_facts(name):
    source = load_class(CORPORA[name].target)()
    assert len(bytes.fromhex(source.checksum())) == 32
    assert source.name == name
    assert source.split_rule == CORPORA[name].split_rule
    assert find_prepared(CorpusConfig(name=name)) is None


def test_no_corpus_relies_on_the_address_that_refuses_everybody():
    for name in ("wt103", "wt2"):
        addresses = load_class(CORPORA[name].target).archive.addresses
        assert len(addresses) > 1
        assert "research.metamind.io" not in addresses[0]


def test_the_published_archive_is_verified(small, prepared):
    corpus = prepared("wt2", small)
    assert corpus.tokens == {"train": 8, "valid": 3, "test": 4}
    assert corpus.warnings == ()
    assert prepare(CONFIG) == corpus  # neither the file nor the network is needed any more


def test_an_archive_with_another_checksum_is_refused(small, prepared, archive):
    other = archive("other.zip", {k: v.encode() + b"more" for k, v in MEMBERS.items()})
    with pytest.raises(UserError, match=r"other\.zip: SHA-256 is .*, not .*; give the published"):
        prepared("wt2", other)


@pytest.mark.parametrize("inner", ["", "wikitext-2", "more/wikitext-2"])
def test_a_folder_serves_at_any_depth_that_the_archive_has(small, prepared, tmp_path, inner):
    folder = tmp_path / "mine" / inner
    folder.mkdir(parents=True)
    for member, text in MEMBERS.items():
        (folder / member.rpartition("/")[2]).write_text(text)
    corpus = prepared("wt2", tmp_path / "mine" / inner.removesuffix("wikitext-2"))
    assert corpus.tokens["train"] == 8
    assert any("not verified by a checksum" in warning for warning in corpus.warnings)


def test_a_folder_serves_with_the_names_that_the_official_script_gives(small, prepared, tmp_path):
    for split, text in TEXTS.items():
        (tmp_path / f"{split}.txt").write_text(text)
    assert prepared("wt2", tmp_path).tokens["test"] == 4


def test_a_folder_that_lacks_a_file_is_refused(small, prepared, tmp_path):
    (tmp_path / "train.txt").write_text("a b\n")
    message = r"neither wiki\.valid\.tokens nor valid\.txt in it; give another folder"
    with pytest.raises(UserError, match=message):
        prepared("wt2", tmp_path)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ({"vocabulary_size": 6}, "wt2: 5 symbols, 6 are published"),
        ({"train_tokens": 9}, "wt2: 8 tokens in train, 9 are published"),
        ({"test_tokens": 5}, "wt2: 4 tokens in test, 5 are published"),
    ],
)
def test_other_counts_than_the_published_ones_are_refused(
    small, published, prepared, count, message
):
    published("wt2", small, **COUNTS | count)
    with pytest.raises(UserError, match=f"{message}; give the published files, or"):
        prepared("wt2", small)
    assert find_prepared(CONFIG) is None


def test_what_cannot_be_fetched_says_how_to_give_it(monkeypatch):
    source = load_class(CORPORA["wt2"].target)
    nowhere = download.PublishedFile("wikitext-2-v1.zip", ("http://127.0.0.1:9/x",), "0" * 64)
    monkeypatch.setattr(source, "archive", nowhere)
    message = (
        rf"cannot fetch wikitext-2-v1\.zip \(SHA-256 {'0' * 64}\): http://127\.0\.0\.1:9/x: "
        r"no connection; get it another way: txlbench data prepare wt2 --from-file PATH"
    )
    with pytest.raises(UserError, match=message):
        prepare(CONFIG)


def test_a_missing_file_is_refused(small, prepared, tmp_path):
    with pytest.raises(UserError, match="nowhere: no such file"):
        prepared("wt2", tmp_path / "nowhere")


PTB_TEXTS = {
    "train": " pierre <unk> N years old \n mr. <unk> is \n",
    "valid": " a new N \n",
    "test": " no it was n't black monday \n",
}


@pytest.fixture
def archived(archive, published):
    published("ptb", vocabulary_size=16)
    members = {f"./simple-examples/data/ptb.{k}.txt": v.encode() for k, v in PTB_TEXTS.items()}
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
        (downloads / file.name).write_text(PTB_TEXTS[split])
        sha256 = hashlib.sha256(PTB_TEXTS[split].encode()).hexdigest()
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


TRAIN = " \n = Title = \n \n The the <unk> @-@ the , Zoë the \n"
VALID = " \n Zoë Zoë , \n"
TEST = " The <unk> \n"


@pytest.fixture
def corpus(archive, published, prepared):
    def corpus(name, folder):
        members = dict(zip(("train", "valid", "test"), (TRAIN, VALID, TEST), strict=True))
        path = archive(
            f"{folder}-v1.zip",
            {f"{folder}/wiki.{split}.tokens": text.encode() for split, text in members.items()},
        )
        published(name, path)
        return prepared(name, path)

    return corpus


def test_every_line_ends_in_eos_also_a_blank_one(corpus):
    wt103 = corpus("wt103", "wikitext-103")
    assert wt103.tokens == {"train": 15, "valid": 5, "test": 3}
    eos = wt103.vocabulary.index["<eos>"]
    assert eos == 0
    assert [int((wt103.ids(split) == eos).sum()) for split in ("train", "valid", "test")] == [
        4,
        2,
        1,
    ]


def test_case_is_kept_and_words_go_by_frequency_and_first_occurrence_in_train(corpus):
    assert corpus("wt103", "wikitext-103").vocabulary.symbols == (
        *("<eos>", "the", "=", "Title", "The", "<unk>", "@-@", ",", "Zoë"),
    )


def test_wikitext_2_counts_all_three_splits(corpus):
    assert corpus("wt2", "wikitext-2").vocabulary.symbols == (
        *("<eos>", "the", "Zoë", "=", "The", "<unk>", ",", "Title", "@-@"),
    )


def test_decoding_gives_the_words_again(corpus, texts):
    decoded = texts(corpus("wt103", "wikitext-103"))
    assert [line.split() for text in decoded for line in text.splitlines()] == [
        line.split() for text in (TRAIN, VALID, TEST) for line in text.splitlines()
    ]

"""Published files come from an archive or a folder and have the published checksum and counts."""

import pytest

from txlbench.config.catalogue import CORPORA, CORPUS_LOADERS
from txlbench.config.corpus import CorpusConfig
from txlbench.data import fetching
from txlbench.data.preparation import find_prepared, prepare
from txlbench.data.published import Published
from txlbench.errors import UserError

TEXTS = {"train": " \n = A = \n a b \n", "valid": " b a \n", "test": " a \n b \n"}
MEMBERS = {f"wikitext-2/wiki.{split}.tokens": text for split, text in TEXTS.items()}
COUNTS = {"vocabulary_size": 5, "train_tokens": 8, "valid_tokens": 3, "test_tokens": 4}
CONFIG = CorpusConfig(name="wt2")

PUBLISHED = [
    name for name in CORPUS_LOADERS.names() if issubclass(CORPUS_LOADERS.load(name), Published)
]


@pytest.fixture
def small(archive, published):
    """A miniature of WikiText-2 in the place of the real one."""
    path = archive("wikitext-2-v1.zip", {k: v.encode() for k, v in MEMBERS.items()})
    published("wt2", path, **COUNTS)
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_corpus_has_a_checksum_and_its_facts(name):
    source = CORPUS_LOADERS.load(name)()
    assert len(bytes.fromhex(source.checksum())) == 32
    assert source.name == name
    assert source.split_rule == CORPORA[name].split_rule
    assert find_prepared(CorpusConfig(name=name)) is None


def test_no_corpus_relies_on_the_address_that_refuses_everybody():
    for name in ("wt103", "wt2"):
        addresses = CORPUS_LOADERS.load(name).archive.addresses
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
    source = CORPUS_LOADERS.load("wt2")
    nowhere = fetching.PublishedFile("wikitext-2-v1.zip", ("http://127.0.0.1:9/x",), "0" * 64)
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

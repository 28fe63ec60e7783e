"""WikiText is taken word for word, with the vocabulary of the official code."""

import pytest

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

"""`lm1b`: the One Billion Word benchmark of Chelba et al. 2013, with its vocabulary of 793,470.

The sentences of train are unrelated; they come in an order that is shuffled once and for all, files
and then the sentences of each file, as the official iterator shuffles them anew every epoch. The
official code names one held-out file as both valid and test, and so does this.

`<S>`, which begins and ends a sentence, is `<eos>` here, and `<UNK>` is `<unk>`, with their
official ids. The released PyTorch code scores one `<S>` a sentence: this is `lm1b`. The TensorFlow
code joins sentences that have one at both ends, so that every boundary adds a prediction of `<S>`
after `<S>` that costs next to nothing: this is `lm1b-tf`.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.download import PublishedFile, fetch
from txlbench.data.published import PublishedCorpus, compare
from txlbench.data.source import Counts
from txlbench.data.text import TextPart
from txlbench.data.vocabulary import EOS, UNKNOWN, Vocabulary, WordVocabulary

FOLDER = "1-billion-word-language-modeling-benchmark-r13output"
SEED = 1111
"""The seed of the released code."""

NAMES = {"<S>": EOS, "<UNK>": UNKNOWN}
"""Names of two symbols of the vocabulary file as they are here."""


class BillionWords(PublishedCorpus):
    """Sentences with one `<S>` between them, as in the released PyTorch code."""

    name = "lm1b"
    archive = PublishedFile(
        f"{FOLDER}.tar.gz",
        (
            f"https://www.statmt.org/lm-benchmark/{FOLDER}.tar.gz",
            f"http://www.statmt.org/lm-benchmark/{FOLDER}.tar.gz",
        ),
        "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
    )
    words = PublishedFile(
        "1b_word_vocab.txt",
        (
            "https://github.com/rafaljozefowicz/lm/raw/master/1b_word_vocab.txt",
            "https://raw.githubusercontent.com/rafaljozefowicz/lm/master/1b_word_vocab.txt",
        ),
        None,
    )
    held_out = "heldout-00000-of-00050"
    members: ClassVar[Mapping[str, str]] = {
        held_out: f"{FOLDER}/heldout-monolingual.tokenized.shuffled/news.en.{held_out}",
        **{
            f"{part:05d}-of-00100": f"{FOLDER}/training-monolingual.tokenized.shuffled/"
            f"news.en-{part:05d}-of-00100"
            for part in range(1, 100)
        },
    }
    begin: ClassVar[bytes] = b""
    """Bytes before each sentence, besides the newline after the one before it."""

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        self._vocabulary_file()  # If it cannot be had, the gigabytes are not fetched either.
        files = self.files(scratch)
        held_out, train = scratch / "valid.txt", scratch / "train.txt"
        self._write(held_out, _lines(files.pop(self.held_out)))
        self._write(train, _shuffled(files, scratch))
        return {
            "train": TextPart(train),
            "valid": TextPart(held_out),
            "test": TextPart(held_out),
        }

    def _write(self, path: Path, sentences: Iterable[bytes]) -> None:
        with path.open("wb") as file:
            if not self.begin:
                file.write(b"\n")
            for sentence in sentences:
                file.write(self.begin + sentence.rstrip(b"\r\n") + b"\n")

    def vocabulary(self, texts: Mapping[Split, TextPart]) -> Vocabulary:  # noqa: ARG002
        path = self._vocabulary_file()
        with path.open(encoding="utf-8") as file:
            symbols = (line.split()[0] for line in file if line.strip())
            vocabulary = WordVocabulary(dict.fromkeys(NAMES.get(name, name) for name in symbols))
        compare(str(path), "symbols", len(vocabulary), CORPORA[self.name].vocabulary_size)
        return vocabulary

    def _vocabulary_file(self) -> Path:
        """Beside or in what the user gave, else fetched."""
        if self.from_file is not None:
            folder = self.from_file if self.from_file.is_dir() else self.from_file.parent
            if (folder / self.words.name).is_file():
                return folder / self.words.name
        return fetch(self.words, f"put it beside {self.archive.name}, {self.instead}")

    def review(self, vocabulary: Vocabulary, counts: Counts) -> list[str]:
        unverified = f"no checksum of {self.words.name} is known; its symbols are counted only"
        boundaries = self._about_boundaries(int(counts["test"][vocabulary.index[EOS]]))
        return [*super().review(vocabulary, counts), unverified, boundaries]

    def _about_boundaries(self, found: int) -> str:
        """Counts the predictions of `<S>` after `<S>` in a test of `found` such tokens."""
        if self.begin:
            return (
                f"test has {found // 2 - 1:,} predictions of <S> after <S>, which are nearly free"
            )
        return f"test has no predictions of <S> after <S>; lm1b-tf adds {found - 2:,}, nearly free"


class BillionWordsTensorFlow(BillionWords):
    """Sentences with `<S>` at both ends, as in the released TensorFlow code."""

    name = "lm1b-tf"
    begin = b"\n"


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _shuffled(files: Mapping[str, Path], scratch: Path) -> Iterator[bytes]:
    """The lines of all files in an order of their own; files in `scratch` go as they are read.

    Sorting by random numbers, unlike `shuffle`, gives the same order in every version of Python.
    """
    generator = random.Random(SEED)
    for path in sorted(files.values(), key=lambda _: generator.random()):
        yield from sorted(_lines(path), key=lambda _: generator.random())
        if path.parent == scratch:
            path.unlink()

"""Finds the text whose tokens a group was scored on, for measures that tell tokens apart.

A loss file may hold it; a model that was read knows it; else the losses name a corpus, which is
opened if it is prepared already and still the same. Nothing is fetched or built.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.model_ref import ModelRef
from txlbench.commands.recl_request import Subject
from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA, Level
from txlbench.config.run_config import CorpusConfig
from txlbench.data.corpus import Corpus
from txlbench.data.prepare import find_prepared
from txlbench.errors import UserError
from txlbench.evaluation.context.token_classes import TokenText
from txlbench.records.loss_file import LossFile

UNITS_OF_LEVELS: dict[Level | None, Literal["symbol", "piece", "word"]] = {
    "byte": "symbol",
    "char": "symbol",
    "word": "word",
    None: "piece",
}


def text_of(group: Sequence[Subject]) -> TokenText | None:
    """The text of a group, from the first of its members that leads to one."""
    for subject in group:
        found = _of_model(subject) or _of_file(subject.losses) or _of_corpus(subject.losses)
        if found is not None:
            return found
    return None


def _of_model(subject: Subject) -> TokenText | None:
    """The text that was read for the losses, with the training text of a run."""
    ref, text = subject.ref, subject.text
    if ref is None or text is None:
        return None
    training = None
    if ref.trained is not None:
        corpus = _prepared(ref.trained.corpus)
        training = None if corpus is None else corpus.ids("train")
    return TokenText(
        text.ids,
        pieces_of(ref, text.ids[: int(subject.losses.positions[-1]) + 1]),
        None if training is None else _counts(training, ref.capabilities.vocabulary_size),
        training,
        UNITS_OF_LEVELS[text.level],
    )


def pieces_of(ref: ModelRef, ids: NDArray[Any]) -> Sequence[str] | None:
    """What ids read as: the vocabulary, or what the tokenizer makes of those that occur."""
    if ref.open_tokenizer is None:
        return ref.capabilities.tokens
    tokenizer, used = ref.tokenizer(), np.unique(ids).tolist()
    pieces = [""] * (used[-1] + 1)
    for number in used:
        pieces[number] = tokenizer.decode([number])
    return pieces


def _of_file(file: LossFile) -> TokenText | None:
    if "ids" not in file.text:
        return None
    pieces = file.text.get("pieces")
    texts = None if pieces is None else tuple(pieces.tolist())
    is_symbolic = texts is not None and all(len(piece) <= 1 for piece in texts)
    return TokenText(
        file.text["ids"],
        texts,
        file.text.get("counts"),
        unit="symbol" if is_symbolic else "piece",
    )


def _of_corpus(file: LossFile) -> TokenText | None:
    """The prepared corpus of the catalogue whose checksum and vocabulary the losses carry."""
    name, split = file.settings.get("corpus"), _split(file.split)
    if not isinstance(name, str) or name not in CORPORA or split is None:
        return None
    corpus = _prepared(CorpusConfig(name=name))
    if corpus is None or corpus.checksum != file.corpus:
        return None
    ids, vocabulary = corpus.ids(split), corpus.vocabulary
    if file.vocabulary not in (None, vocabulary.fingerprint) or file.positions[-1] >= len(ids):
        return None
    training = corpus.ids("train")
    counts = _counts(training, len(vocabulary))
    return TokenText(ids, vocabulary.symbols, counts, training, UNITS_OF_LEVELS[corpus.level])


def _split(name: str | None) -> Split | None:
    return next((split for split in ("train", "valid", "test") if split == name), None)


def _prepared(config: CorpusConfig) -> Corpus | None:
    try:
        return find_prepared(config)
    except UserError:
        return None


def _counts(ids: NDArray[Any], symbols: int) -> NDArray[np.int64]:
    """[V]: occurrences of each id, a part of the text at a time."""
    counts = np.zeros(symbols, dtype=np.int64)
    for start in range(0, len(ids), AT_ONCE):
        counts += np.bincount(ids[start : start + AT_ONCE], minlength=symbols)
    return counts


AT_ONCE = 1 << 22
"""Token ids that are counted at a time, to bound memory."""

"""The text that `eval` scores: a corpus that fits the model, or token ids of the user's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.named_corpus import corpus_named
from txlbench.data.corpus import Corpus
from txlbench.data.preparation import prepare
from txlbench.data.vocabulary import UNKNOWN
from txlbench.errors import UserError
from txlbench.execution.question import Question
from txlbench.execution.references import LoadedModel


@dataclass(frozen=True)
class Text:
    """What is scored: ids, and the corpus they are of, if any."""

    ids: NDArray[Any]
    corpus: Corpus | None

    @property
    def units(self) -> tuple[str, ...]:
        if self.corpus is None:
            return ("bpc", "ppl")
        return ("ppl",) if self.corpus.level == "word" else ("bpc",)


def read_text(question: Question, loaded: LoadedModel) -> Text:
    """The ids to score; UserError if they are not there, or mean something else to the model."""
    if question.level is not None and question.corpus is None:
        raise UserError(f"--level {question.level}: is of a text", "give it with --corpus")
    if question.tokens is not None:
        if question.corpus is not None:
            raise UserError("--tokens and --corpus exclude each other", "drop one of them")
        return Text(_read_ids(question.tokens, loaded.vocabulary_size), None)
    if question.corpus is not None:
        corpus = prepare(corpus_named(question.corpus, question.level))
    elif loaded.run is not None:
        corpus = prepare(loaded.run.corpus)
    else:
        raise UserError(f"{question.model}: was not trained here", "give --corpus or --tokens")
    return Text(_in_symbols_of(question, loaded, corpus), corpus)


def _read_ids(path: Path, vocabulary_size: int) -> NDArray[Any]:
    """Token ids [N + 1] from an .npy file, memory-mapped; anything else is refused."""
    try:
        ids: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "give an .npy file of token ids") from error
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path}: not an .npy file of numbers", "save it with numpy.save"
        ) from error
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        shape = getattr(ids, "shape", None)
        raise UserError(f"{path}: shape {shape} found", "give a 1-D array of integers")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary_size:
        raise UserError(
            f"{path}: ids from {ids.min()} to {ids.max()} found",
            f"the model knows 0 to {vocabulary_size - 1}",
        )
    return ids


def _in_symbols_of(question: Question, loaded: LoadedModel, corpus: Corpus) -> NDArray[Any]:
    """The split's ids in the model's own vocabulary, as far as that is known.

    Raises:
        UserError: if the model does not know a symbol of the corpus, or has another number of
            symbols where it does not say which.
    """
    ids, symbols = corpus.ids(question.split), corpus.vocabulary.symbols
    if loaded.tokens == symbols:
        return ids
    if loaded.tokens is None:
        if len(symbols) == loaded.vocabulary_size:
            return ids
        raise UserError(
            f"{question.model} predicts {loaded.vocabulary_size} symbols, {corpus.name} has "
            f"{len(symbols)}",
            "give the corpus it was trained on, or --tokens with its own ids",
        )
    known = {symbol: number for number, symbol in enumerate(loaded.tokens)}
    unknown = known.get(UNKNOWN, -1)
    table = np.array([known.get(symbol, unknown) for symbol in symbols], dtype=np.int64)
    translated: NDArray[Any] = table[ids]
    if (translated < 0).any():
        symbol = symbols[int(ids[int(np.argmax(translated < 0))])]
        raise UserError(
            f"{question.model} does not know {symbol!r} of {corpus.name}, and has no {UNKNOWN}",
            "give a text of its symbols, or --tokens with its own ids",
        )
    return translated

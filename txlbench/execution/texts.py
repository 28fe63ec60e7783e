"""The text that `eval` scores: a corpus that fits the model, or token ids of the user's."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.catalogue import Level
from txlbench.config.named_corpus import corpus_named
from txlbench.config.run import RunConfig
from txlbench.data.corpus import Corpus
from txlbench.data.preparation import prepare
from txlbench.errors import UserError
from txlbench.execution.question import Question

if TYPE_CHECKING:  # A model brings torch along, a corpus does not.
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


def read_text(question: Question, loaded: "LoadedModel") -> Text:
    """The ids to score; UserError if they are not there, or mean something else to the model."""
    if question.tokens is not None:
        if question.corpus is not None:
            raise UserError("--tokens and --corpus exclude each other", "drop one of them")
        return Text(_read_ids(question.tokens, loaded.vocabulary_size), None)
    if question.corpus is None and loaded.run is None:
        raise UserError(f"{question.model}: was not trained here", "give --corpus or --tokens")
    corpus = corpus_for(question.model, question.corpus, question.level, loaded.run)
    check_vocabulary(question.model, loaded, corpus, ", or --tokens with its own ids")
    return Text(corpus.ids(question.split), corpus)


def corpus_for(
    reference: str, name: str | None, level: Level | None, run: RunConfig | None
) -> Corpus:
    """The corpus of that name, else the one that the run was trained on."""
    if name is not None:
        return prepare(corpus_named(name, level))
    if run is None:
        raise UserError(f"{reference}: was not trained here", "give --corpus")
    return prepare(run.corpus)


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


def check_vocabulary(
    reference: str, loaded: "LoadedModel", corpus: Corpus, instead: str = ""
) -> None:
    """Refuses a corpus whose ids mean something else to the model, as far as that is known.

    Args:
        instead: what else than another corpus the user can give.
    """
    remedy = f"give the corpus it was trained on{instead}"
    size = len(corpus.vocabulary)
    if size != loaded.vocabulary_size:
        raise UserError(
            f"{reference} predicts {loaded.vocabulary_size} symbols, {corpus.name} has {size}",
            remedy,
        )
    if loaded.tokens is None:
        return
    pairs = enumerate(zip(loaded.tokens, corpus.vocabulary.symbols, strict=True))
    for number, (theirs, ours) in pairs:
        if theirs != ours:
            raise UserError(
                f"{reference} and {corpus.name} differ at id {number}: {theirs!r}, {ours!r}",
                remedy,
            )

"""The text that `eval` scores: a corpus that fits the model, or token ids of the user's.

What the user asks of `eval`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import Level
from txlbench.config.run_config import RunConfig, corpus_named
from txlbench.data.corpus import Corpus
from txlbench.data.prepare import prepare
from txlbench.data.vocabulary import UNKNOWN
from txlbench.errors import UserError
from txlbench.records.loss_file import UNREADABLE

if TYPE_CHECKING:
    from txlbench.commands.load_model import LoadedModel


@dataclass(frozen=True)
class Question:
    """What the user asked `eval` for; None stands for the model's own setting.

    Attributes:
        corpus: a catalogue's name or a text; the corpus it was trained on if neither this nor
            `tokens` is given.
        level: what a token of a text is, where `corpus` is one.
        tokens: a 1-D .npy file of token ids; all but the first are scored.
        attention_lengths: numbers of keys a query sees; empty for one pass with `mem_len`.
        losses: where each target's loss goes, as .npz.
    """

    model: str
    corpus: str | None = None
    level: Level | None = None
    tokens: Path | None = None
    split: Split = "test"
    batch_size: int = 10
    tgt_len: int | None = None
    mem_len: int | None = None
    attention_lengths: tuple[int, ...] = ()
    clamp_len: int | None = None
    same_length: bool | None = None
    exact: bool = False
    zero_memory: bool = False
    losses: Path | None = None
    device: str = "auto"
    checkpoint: str = "best"


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
        for option, value in (("corpus", question.corpus), ("level", question.level)):
            if value is not None:
                raise UserError(f"--tokens and --{option} exclude each other", "drop one of them")
        return Text(_read_ids(question.tokens, loaded.vocabulary_size), None)
    instead = ", or --tokens with its own ids"
    corpus = corpus_for(question.model, question.corpus, question.level, loaded.run, instead)
    return Text(ids_of(corpus, question.split, loaded, instead), corpus)


def corpus_for(
    reference: str, name: str | None, level: Level | None, run: RunConfig | None, instead: str = ""
) -> Corpus:
    """The corpus of that name, else the one that the run was trained on.

    Args:
        instead: what else than a corpus the user can give.
    """
    if level is not None and name is None:
        raise UserError(f"--level {level}: is of a text", "give it with --corpus")
    if name is not None:
        return prepare(corpus_named(name, level))
    if run is None:
        raise UserError(f"{reference}: was not trained here", f"give --corpus{instead}")
    return prepare(run.corpus)


def _read_ids(path: Path, vocabulary_size: int) -> NDArray[Any]:
    """Token ids [N + 1] from an .npy file, memory-mapped; anything else is refused."""
    try:
        ids: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "give an .npy file of token ids") from error
    except (OSError, *UNREADABLE) as error:
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


def ids_of(corpus: Corpus, split: Split, loaded: "LoadedModel", instead: str = "") -> NDArray[Any]:
    """The split's ids in the model's own vocabulary, as far as that is known.

    Args:
        instead: what else than another corpus the user can give.

    Raises:
        UserError: if the model does not know a symbol of the corpus, or has another number of
            symbols where it does not say which.
    """
    ids, symbols = corpus.ids(split), corpus.vocabulary.symbols
    if loaded.tokens == symbols:
        return ids
    if loaded.tokens is None:
        if len(symbols) == loaded.vocabulary_size:
            return ids
        raise UserError(
            f"{loaded.reference} predicts {loaded.vocabulary_size} symbols, {corpus.name} has "
            f"{len(symbols)}",
            f"give the corpus it was trained on{instead}",
        )
    known = {symbol: number for number, symbol in enumerate(loaded.tokens)}
    unknown = known.get(UNKNOWN, -1)
    table = np.array([known.get(symbol, unknown) for symbol in symbols], dtype=np.int64)
    translated: NDArray[Any] = table[ids]
    if (translated < 0).any():
        symbol = symbols[int(ids[int(np.argmax(translated < 0))])]
        raise UserError(
            f"{loaded.reference} does not know {symbol!r} of {corpus.name}, and has no {UNKNOWN}",
            f"give a text of its symbols{instead}",
        )
    return translated

"""The text that a model is scored on: its own corpus, another one, a file, or token ids."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.model_ref import ModelRef
from txlbench.config.base import Part
from txlbench.config.catalogue import CORPORA, UNITS, Level
from txlbench.config.run_config import CorpusConfig, corpus_named
from txlbench.data.corpus import Corpus
from txlbench.data.prepare import encode_text, prepare
from txlbench.data.text import SPLITS
from txlbench.data.tokenized import Tokenizer, shared_text, tokenized
from txlbench.data.vocabulary import UNKNOWN, UnknownSymbolError, Vocabulary
from txlbench.errors import UserError
from txlbench.records.finding_schema import ReclSource
from txlbench.records.loss_file import UNREADABLE


@dataclass(frozen=True)
class ScoredText:
    """Token ids in the model's own vocabulary, and what they are of.

    Attributes:
        ids: [N + 1]; N of them are predicted.
        unknown: how many of them stand for symbols that the vocabulary lacks (`<unk>`).
        name, checksum, level, vocabulary: of the corpus; None where only ids were given.
        bytes: of the text where a model's own tokenizer cuts it; None for a vocabulary of ours.
    """

    split: Part
    ids: NDArray[Any]
    unknown: int | None = None
    name: str | None = None
    checksum: str | None = None
    level: Level | None = None
    vocabulary: str | None = None
    bytes: int | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """bpc or ppl; both where nothing tells what a token is."""
        if self.bytes is not None:
            return ("ppl",)
        return ("bpc", "ppl") if self.level is None else (UNITS[self.level],)

    @property
    def place(self) -> str:
        """The split, and the corpus where there is one."""
        return f"{self.split} of {self.name}" if self.name else self.split

    @property
    def warning(self) -> str | None:
        """The share of unknown tokens in a sentence; None if there are none."""
        if not self.unknown:
            return None
        return (
            f"{self.unknown:,} of {len(self.ids):,} tokens ({self.unknown / len(self.ids):.1%}) of "
            f"{self.name} are {UNKNOWN} to the model"
        )

    @property
    def period(self) -> int:
        """Tokens after which the kind of token recurs."""
        return CORPORA[self.name].period if self.name and self.name in CORPORA else 1


def source_of_pass(
    ref: ModelRef, text: ScoredText | None, **settings: str | int | None
) -> ReclSource:
    """The record of a model and the text it read in a pass of its own, without a loss file.

    Args:
        text: None where a model read no known text.
        settings: that decide what was read, beside corpus and checkpoint.
    """
    return ReclSource(
        reference=ref.reference,
        path=None,
        corpus=text.checksum if text else None,
        split=text.split if text else None,
        vocabulary=text.vocabulary if text else None,
        model=ref.fingerprint(),
        longest=ref.capabilities.longest_context,
        settings={"corpus": text.name if text else None, "checkpoint": ref.checkpoint, **settings},
    )


def read_ids(path: Path, vocabulary_size: int) -> NDArray[Any]:
    """Token ids [N + 1] from an .npy file, memory-mapped; UserError if they are none."""
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


def read_text(
    ref: ModelRef, name: str | None, level: Level | None, split: Part | None, instead: str = ""
) -> ScoredText:
    """The text to score a model on.

    Args:
        name: a catalogue's corpus or the path of a text; the corpus it was trained on if None.
        level: what a token of a text is; the model's own if None.
        split: None for all of a text, else for test.
        instead: what else than a corpus the user can give.

    Raises:
        UserError: if there is no such text, it is no longer the one that the run was trained on,
            or the model reads another level or lacks its symbols.
    """
    if ref.pretrained is not None:
        return _tokenized_text(ref, ref.pretrained.tokenizer, name, level, split)
    if name is None:
        if level is not None:
            raise UserError(f"--level {level}: is of a text", "give it with --corpus")
        return _of_corpus(ref, trained_corpus(ref, instead), split or "test", instead)
    known, vocabulary = ref.capabilities.level, ref.vocabulary(level)
    config = corpus_named(name, level or (known if name not in CORPORA else None))
    if ref.trained is not None and config.resolved_level != known:
        raise UserError(
            f"{ref.reference}: reads {known}s, {name} is a corpus of {config.resolved_level}s",
            f"give a corpus of {known}s",
        )
    if config.path is not None and vocabulary is not None:
        return _in_own_symbols(ref, vocabulary, config, split or "all", instead)
    return _of_corpus(ref, prepare(config), split or ("all" if config.path else "test"), instead)


def _tokenized_text(
    ref: ModelRef, tokenizer: Tokenizer, name: str | None, level: Level | None, split: Part | None
) -> ScoredText:
    """A corpus's text in the tokens of a pretrained model."""
    if name is None:
        raise UserError(f"{ref.reference}: was not trained here", "give --corpus")
    config = corpus_named(name, level)
    split = split or ("all" if config.path else "test")
    text = shared_text(prepare(config), split)
    tokens, size = tokenized(text, tokenizer), ref.capabilities.vocabulary_size
    if int(tokens.ids.max(initial=0)) >= size:
        raise UserError(
            f"{ref.reference}: its tokenizer gives id {tokens.ids.max():,} of {size:,} tokens",
            "give the tokenizer that belongs to the weights",
        )
    return ScoredText(
        split,
        tokens.ids,
        tokens.unknown,
        text.name,
        text.checksum,
        None,
        tokenizer.fingerprint,
        len(text.content),
    )


def trained_corpus(ref: ModelRef, instead: str = "") -> Corpus:
    """The corpus that a run was trained on; UserError if it is no longer the same."""
    if ref.trained is None or ref.run is None:
        raise UserError(f"{ref.reference}: was not trained here", f"give --corpus{instead}")
    corpus = prepare(ref.trained.corpus)
    seen = ref.run.read_facts().corpus.checksum or corpus.checksum
    if seen != corpus.checksum:
        place = ref.trained.corpus.path or corpus.name
        raise UserError(
            f"{place}: is another text than {ref.reference} was trained on (SHA-256 "
            f"{corpus.checksum[:12]}, not {seen[:12]})",
            "restore it, or give the new text with --corpus",
        )
    return corpus


def _of_corpus(ref: ModelRef, corpus: Corpus, split: Part, instead: str) -> ScoredText:
    """A prepared corpus, symbol by symbol in the model's vocabulary, as far as that is known.

    Raises:
        UserError: if the model does not know a symbol of the corpus, or has another number of
            symbols where it does not say which.
    """
    tokens, symbols = ref.capabilities.tokens, corpus.vocabulary.symbols
    size = ref.capabilities.vocabulary_size
    if tokens is None and len(symbols) != size:
        raise UserError(
            f"{ref.reference} predicts {size} symbols, {corpus.name} has {len(symbols)}",
            f"give the corpus it was trained on{instead}",
        )
    given = corpus.ids(split)
    ids = given if tokens in (None, symbols) else _translated(ref, corpus, given, instead)
    own = symbols if tokens is None else tokens
    return ScoredText(
        split,
        ids,
        _count_unknown(ids, own),
        corpus.name,
        corpus.checksum,
        corpus.level,
        _fingerprint(corpus.vocabulary, own),
    )


def _translated(
    ref: ModelRef, corpus: Corpus, ids: NDArray[Any], instead: str
) -> NDArray[np.int64]:
    symbols = corpus.vocabulary.symbols
    known = {symbol: number for number, symbol in enumerate(ref.capabilities.tokens or ())}
    unknown = known.get(UNKNOWN, -1)
    table = np.array([known.get(symbol, unknown) for symbol in symbols], dtype=np.int64)
    translated: NDArray[np.int64] = table[ids]
    if (translated < 0).any():
        symbol = symbols[int(ids[int(np.argmax(translated < 0))])]
        raise UserError(
            f"{ref.reference} does not know {symbol!r} of {corpus.name}, and has no {UNKNOWN}",
            f"give a text of its symbols{instead}",
        )
    return translated


def _in_own_symbols(
    ref: ModelRef, vocabulary: Vocabulary, config: CorpusConfig, split: Part, instead: str
) -> ScoredText:
    """A text of the user's, encoded with the symbols that the model knows."""
    splits = SPLITS if split == "all" else (split,)
    try:
        checksum, ids = encode_text(config, vocabulary, splits)
    except UnknownSymbolError as error:
        raise UserError(
            f"{ref.reference} does not know {error.symbol!r} of {config.path}, and has no "
            f"{UNKNOWN}",
            f"give a text of its symbols{instead}",
        ) from error
    return ScoredText(
        split,
        ids,
        _count_unknown(ids, vocabulary.symbols),
        config.name,
        checksum,
        config.resolved_level,
        vocabulary.fingerprint,
    )


def _count_unknown(ids: NDArray[Any], symbols: tuple[str, ...]) -> int:
    if UNKNOWN not in symbols:
        return 0
    return int(np.count_nonzero(ids == symbols.index(UNKNOWN)))


def _fingerprint(vocabulary: Vocabulary, symbols: tuple[str, ...]) -> str:
    """The fingerprint of the symbols between which the model chooses."""
    if {*symbols} == {*vocabulary.symbols}:
        return vocabulary.fingerprint
    return type(vocabulary)(symbols).fingerprint

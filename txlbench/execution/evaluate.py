"""`eval`: any model on any corpus or token ids, in the regime that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.config.catalogue import Level
from txlbench.config.measurements import Measurement
from txlbench.config.named_corpus import corpus_named
from txlbench.config.section import Split
from txlbench.config.units import displayed
from txlbench.data.corpus import Corpus
from txlbench.data.preparation import prepare
from txlbench.errors import UserError
from txlbench.evaluation.scoring import Score, score
from txlbench.execution.devices import choose_devices
from txlbench.execution.references import LoadedModel, load_model
from txlbench.files import write_atomically

WRONG_VOCABULARY = 0.5
"""An imported model whose perplexity is above this share of its vocabulary knows nothing of the
text: its ids mean something else."""


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
class Answer:
    """One pass and what it gave.

    Attributes:
        units: bpc or ppl; both where only ids are known.
        suspicion: why the number may mean nothing, None if it looks sound.
    """

    measurement: Measurement
    score: Score
    units: tuple[str, ...]
    suspicion: str | None = None


@dataclass(frozen=True)
class _Text:
    """What is scored: ids, and the corpus they are of, if any."""

    ids: NDArray[Any]
    corpus: Corpus | None

    @property
    def units(self) -> tuple[str, ...]:
        if self.corpus is None:
            return ("bpc", "ppl")
        return ("ppl",) if self.corpus.level == "word" else ("bpc",)


def evaluate(question: Question) -> list[Answer]:
    """Scores the text once for each attention length, or once as the model looks back.

    Raises:
        UserError: if model and text do not fit, or settings exclude each other.
    """
    device = torch.device(choose_devices(question.device, 1, 1).names[0])
    loaded = load_model(question.model, device, question.checkpoint)
    text = _read_text(question, loaded)
    measurements = _measurements(question, loaded)
    if question.losses is not None and len(measurements) > 1:
        raise UserError(
            f"--losses {question.losses}: {len(measurements)} attention lengths were asked for",
            "give one",
        )
    answers = []
    for measurement in measurements:
        depth, keep = loaded.config.n_layer, question.losses is not None
        scored = score(loaded.model, text.ids, measurement, depth, device, keep_losses=keep)
        suspicion = _suspicion(question, loaded, scored)
        answers.append(Answer(measurement, scored, text.units, suspicion))
    if question.losses is not None:
        _write_losses(question.losses, answers[0].score)
    return answers


def _read_text(question: Question, loaded: LoadedModel) -> _Text:
    if question.tokens is not None:
        if question.corpus is not None:
            raise UserError("--tokens and --corpus exclude each other", "drop one of them")
        return _Text(_read_ids(question.tokens, loaded.vocabulary_size), None)
    if question.corpus is not None:
        corpus = prepare(corpus_named(question.corpus, question.level))
    elif loaded.run is not None:
        corpus = prepare(loaded.run.corpus)
    else:
        raise UserError(f"{question.model}: was not trained here", "give --corpus or --tokens")
    _check_vocabulary(question, loaded, corpus)
    return _Text(corpus.ids(question.split), corpus)


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


def _check_vocabulary(question: Question, loaded: LoadedModel, corpus: Corpus) -> None:
    """Refuses a corpus whose ids mean something else to the model, as far as that is known."""
    size = len(corpus.vocabulary)
    if size != loaded.vocabulary_size:
        raise UserError(
            f"{question.model} predicts {loaded.vocabulary_size} symbols, {corpus.name} has {size}",
            "give the corpus it was trained on, or --tokens with its own ids",
        )
    if loaded.tokens is None:
        return
    pairs = enumerate(zip(loaded.tokens, corpus.vocabulary.symbols, strict=True))
    for number, (theirs, ours) in pairs:
        if theirs != ours:
            raise UserError(
                f"{question.model} and {corpus.name} differ at id {number}: {theirs!r}, {ours!r}",
                "give the corpus it was trained on, or --tokens with its own ids",
            )


def _suspicion(question: Question, loaded: LoadedModel, scored: Score) -> str | None:
    """What is odd about an imported model's loss.

    On a corpus it is an error, since the corpus chose the ids; on ids that the user gave it is
    worth a warning only.
    """
    perplexity = displayed(scored.loss, "ppl")
    if loaded.run is not None or perplexity <= WRONG_VOCABULARY * loaded.vocabulary_size:
        return None
    problem = (
        f"{question.model}: perplexity {perplexity:,.0f} of a vocabulary of "
        f"{loaded.vocabulary_size:,}; wrong vocabulary?"
    )
    if question.tokens is None:
        raise UserError(problem, "give --tokens with the ids that the model was trained on")
    return problem


def _measurements(question: Question, loaded: LoadedModel) -> list[Measurement]:
    """One pass a length, or one as the model looks back."""
    look_back, recurrent = loaded.look_back, loaded.config.is_recurrent
    if question.attention_lengths and recurrent:
        raise UserError(
            f"--attention-lengths: {loaded.config.kind} has no attention", "drop the option"
        )
    if question.exact and recurrent:
        raise UserError(
            f"--exact: the state of {loaded.config.kind} reaches back without limit",
            "use --batch-size 1",
        )
    if question.zero_memory and recurrent:
        raise UserError("--zero-memory: is for attention", "drop the option")
    mem_len = look_back.mem_len if question.mem_len is None else question.mem_len
    same_length = look_back.same_length if question.same_length is None else question.same_length
    if same_length and mem_len == 0:
        raise UserError("--same-length: needs a memory", "give --mem-len of at least 1")
    one = Measurement(
        regime="streaming",
        split=question.split,
        tgt_len=question.tgt_len or look_back.tgt_len,
        stride=question.tgt_len or look_back.tgt_len,
        mem_len=mem_len,
        same_length=same_length,
        clamp_len=look_back.clamp_len if question.clamp_len is None else question.clamp_len,
        batch_size=question.batch_size,
        exact=question.exact,
        zero_memory=question.zero_memory,
    )
    return [_at_length(one, length, loaded) for length in question.attention_lengths] or [one]


def _at_length(one: Measurement, length: int, loaded: LoadedModel) -> Measurement:
    """Every query sees `length` keys: exactly so with recurrence, else in sliding windows."""
    if loaded.recurrence:
        changes: dict[str, Any] = {"mem_len": length, "same_length": True}
    else:
        stride = max(1, length // 4)
        changes = {"regime": "windows", "tgt_len": length, "stride": stride, "mem_len": 0}
        changes |= {"same_length": False, "zero_memory": False}
    return one.model_copy(update={**changes, "attention_length": length})


def _write_losses(path: Path, scored: Score) -> None:
    assert scored.losses is not None
    assert scored.positions is not None
    losses, positions = scored.losses, scored.positions
    try:
        write_atomically(path, lambda file: np.savez(file, losses=losses, positions=positions))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "choose another place") from error

"""`eval`: any model on any corpus or token ids, in the regime that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from txlbench.commands.load_model import LoadedModel, load_model
from txlbench.commands.texts import Question, read_text
from txlbench.config.base import displayed
from txlbench.config.measurements import Measurement
from txlbench.errors import UserError
from txlbench.evaluation.scoring import Score, score
from txlbench.files import write_atomically
from txlbench.machine import own_device

WRONG_VOCABULARY = 0.5
"""An imported model whose perplexity is above this share of its vocabulary knows nothing of the
text: its ids mean something else."""


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


def evaluate(question: Question) -> list[Answer]:
    """Scores the text once for each attention length, or once as the model looks back.

    Raises:
        UserError: if model and text do not fit, or settings exclude each other.
    """
    device = own_device(question.device)
    loaded = load_model(question.model, device, question.checkpoint)
    text = read_text(question, loaded)
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
    if question.attention_lengths and question.same_length is False:
        raise UserError(
            "--no-same-length: an attention length is the same for every query", "drop one of them"
        )
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
    return [
        _at_length(one, length, loaded) for length in dict.fromkeys(question.attention_lengths)
    ] or [one]


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

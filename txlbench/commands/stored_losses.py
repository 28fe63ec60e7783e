"""A model's context losses: those that lie beside its weights, else computed now and stored."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from txlbench.commands.model_ref import ModelRef, resolve, same_with_resets
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, ReclRequest, Subject
from txlbench.commands.texts import ScoredText, read_text
from txlbench.config.catalogue import CORPORA
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp, segments_of
from txlbench.config.run_config import CorpusConfig
from txlbench.data.planted import PROCESS, Planted
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import GivenPositions, Positions
from txlbench.records.loss_file import LossFile, read_loss_file

OPTIMUM = f"optimum:{Planted.name}"
"""Names the best losses that any model of the corpus `planted` can have."""

Progress = Callable[[str, int, int], None]
"""Told the model, how many of its windows are read, and how many there are."""


def silent(reference: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def context_losses_of(reference: str, request: ReclRequest, progress: Progress = silent) -> Subject:
    """The losses of the model that `reference` names, at `request.contexts`.

    Raises:
        UserError: if there is no such model, it does not fit the corpus, or the corpus is too
            short for what is asked.
    """
    if reference == OPTIMUM:
        return Subject(reference, optimum_losses(request))
    ref = resolve(reference, request.checkpoint)
    losses = _stored(ref, request, progress)
    same = same_with_resets(ref)
    resets = None if same is None else _stored(same, request, progress)
    return Subject(reference, losses, ref.paper, with_resets=resets)


def optimum_losses(request: ReclRequest) -> LossFile:
    """The lowest possible loss at every position and context; UserError for another corpus."""
    if request.corpus not in (None, Planted.name):
        raise UserError(f"{OPTIMUM}: is not of {request.corpus}", "drop --corpus")
    corpus, split = prepare(CorpusConfig(name=Planted.name)), request.split or "test"
    if split == "all":
        raise UserError(f"{OPTIMUM}: --split all", "choose train, valid or test")
    ids = corpus.ids(split)
    contexts = np.array(request.contexts or DEFAULT_CONTEXTS, dtype=np.int64)
    positions = request.positions_in(len(ids), CORPORA[Planted.name].period).array
    losses = PROCESS.losses(ids, positions[None, :], contexts[:, None])
    return LossFile(
        losses.astype(np.float32),
        contexts,
        positions,
        name=OPTIMUM,
        corpus=corpus.checksum,
        split=split,
        vocabulary=corpus.vocabulary.fingerprint,
        settings={"unit": "bpc"},
    )


def _stored(ref: ModelRef, request: ReclRequest, progress: Progress) -> LossFile:
    """The losses of a model, called as the user calls it."""
    text = read_text(ref, request.corpus, request.level, request.split)
    positions = request.positions_in(len(text.ids), text.period)
    path = _place(ref, text, positions, request)
    if not path.exists():
        from txlbench.commands.context_pass import compute

        def watch(done: int, total: int) -> None:
            progress(ref.reference, done, total)

        compute(ref, text, positions.array, request, path, watch)
    return replace(read_loss_file(path), name=ref.reference)


def _place(
    ref: ModelRef, text: ScoredText, positions: Positions | GivenPositions, request: ReclRequest
) -> Path:
    """Where the losses lie: a name for all that decides them but the kind of machine."""
    decides: dict[str, Any] = {
        "weights": ref.fingerprint(),
        "corpus": text.checksum,
        "vocabulary": text.vocabulary,
        "split": text.split,
        "contexts": request.contexts or DEFAULT_CONTEXTS,
        "positions": positions.key,
        "attention_length": request.attention_length,
        "clamp_len": None if ref.config is None else evaluation_clamp(ref.config),
        "tgt_len": None if ref.config is None else segments_of(ref.config).tgt_len,
    }
    return ref.losses / f"{text.split}-{fingerprint(decides, 16)}.npz"

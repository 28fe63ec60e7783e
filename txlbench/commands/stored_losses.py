"""A MODEL's context losses: those that its run keeps, else computed now and kept.

The best losses that any model of the corpus `planted` can have, as a loss file's content.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from txlbench.commands.model_ref import KnownModel, known_model, known_with_resets
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, ReclRequest, Subject, Wanted
from txlbench.commands.texts import corpus_for
from txlbench.config.catalogue import CORPORA
from txlbench.config.identity import fingerprint
from txlbench.config.run_config import CorpusConfig
from txlbench.data.corpus import Corpus
from txlbench.data.planted import PROCESS, Planted
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import GivenPositions, Positions
from txlbench.records.loss_file import LossFile, read_loss_file

OPTIMUM = f"optimum:{Planted.name}"
"""What the optimum is called where a model is."""


def optimum_losses(wanted: Wanted) -> LossFile:
    """The lowest possible loss at every position and context; UserError for another corpus."""
    if wanted.corpus not in (None, Planted.name):
        raise UserError(f"{OPTIMUM}: is not of {wanted.corpus}", "drop --corpus")
    corpus = prepare(CorpusConfig(name=Planted.name))
    ids = corpus.ids(wanted.split)
    contexts = np.array(wanted.contexts, dtype=np.int64)
    period = CORPORA[Planted.name].period
    positions = wanted.positions_in(len(ids), period).array
    losses = PROCESS.losses(ids, positions[None, :], contexts[:, None])
    return LossFile(
        losses.astype(np.float32),
        contexts,
        positions,
        name=OPTIMUM,
        corpus=corpus.checksum,
        split=wanted.split,
        vocabulary=corpus.vocabulary.fingerprint,
        settings={"unit": "bpc"},
    )


Progress = Callable[[int, int], None]
"""Told how many windows are read, and how many there are."""


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


def context_losses_of(reference: str, request: ReclRequest, progress: Progress = silent) -> Subject:
    """The losses of the model that `reference` names, at `request.contexts`.

    `optimum:planted` names the best losses that any model of that corpus can have.

    Raises:
        UserError: if there is no such model, it does not fit the corpus, or the corpus is too
            short for what is asked.
    """
    wanted = Wanted(
        contexts=request.contexts or DEFAULT_CONTEXTS,
        tokens=request.tokens,
        positions=request.positions,
        corpus=request.corpus,
        level=request.level,
        split=request.split or "test",
        attention_length=request.attention_length,
        batch_size=request.batch_size,
        device=request.device,
        checkpoint=request.checkpoint,
    )
    if reference == OPTIMUM:
        return Subject(reference, optimum_losses(wanted))
    known = known_model(reference, wanted.checkpoint, wanted.results)
    losses = losses_of(known, wanted, progress)
    same = known_with_resets(known, wanted.checkpoint)
    resets = None if same is None else losses_of(same, wanted, progress)
    return Subject(reference, losses, known.paper, with_resets=resets)


def losses_of(known: KnownModel, wanted: Wanted, progress: Progress) -> LossFile:
    """The losses of a model, called as the user calls it."""
    corpus = corpus_for(known.reference, wanted.corpus, wanted.level, known.run)
    period = CORPORA[corpus.name].period if corpus.name in CORPORA else 1
    length = corpus.tokens[wanted.split]
    positions = wanted.positions_in(length, period)
    path = _place(known, corpus, positions, wanted)
    if not path.exists():
        from txlbench.commands.context_pass import compute

        compute(known, corpus, positions, wanted, path, progress)
    return replace(read_loss_file(path), name=known.reference)


def _place(
    known: KnownModel, corpus: Corpus, positions: Positions | GivenPositions, wanted: Wanted
) -> Path:
    """Where the losses lie: a name for all that decides them but the kind of machine."""
    decides: dict[str, Any] = {
        "weights": known.weights,
        "corpus": corpus.checksum,
        "vocabulary": corpus.vocabulary.fingerprint,
        "split": wanted.split,
        "contexts": wanted.contexts,
        "positions": positions.key,
        "attention_length": wanted.attention_length,
        "clamp_len": known.look_back.clamp_len,
        "tgt_len": known.look_back.tgt_len,
    }
    return known.losses / f"{wanted.split}-{fingerprint(decides, 16)}.npz"

"""The best losses that any model of the corpus `planted` can have, as a loss file's content."""

import numpy as np

from txlbench.config.catalogue import CORPORA
from txlbench.config.corpus import CorpusConfig
from txlbench.data.planted import PROCESS, Planted
from txlbench.data.preparation import prepare
from txlbench.errors import UserError
from txlbench.execution.wanted import Wanted
from txlbench.records.loss_file import LossFile

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

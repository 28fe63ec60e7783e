"""One pass of a model over the windows of a corpus, into a loss file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from txlbench.commands.evaluate import WRONG_VOCABULARY
from txlbench.commands.load_model import LoadedModel
from txlbench.commands.model_ref import KnownModel
from txlbench.commands.recl_request import Wanted
from txlbench.commands.texts import ids_of
from txlbench.config.base import displayed
from txlbench.data.corpus import Corpus
from txlbench.errors import UserError
from txlbench.evaluation.context_losses import PartialLosses, Progress, context_losses
from txlbench.evaluation.context_positions import GivenPositions, Positions
from txlbench.evaluation.context_reading import choose_reading, longest_context
from txlbench.machine import own_device
from txlbench.records.loss_file import LossFile, write_loss_file


def compute(
    known: KnownModel,
    corpus: Corpus,
    positions: Positions | GivenPositions,
    wanted: Wanted,
    path: Path,
    progress: Progress,
) -> None:
    """Writes the losses to `path`; what is finished lies beside it until all is.

    Raises:
        UserError: if the model does not fit the corpus, or a loss is not a number.
    """
    device = own_device(wanted.device)
    loaded = known.load(device)
    ids = ids_of(corpus, wanted.split, loaded)
    contexts = np.array(wanted.contexts, dtype=np.int64)
    longest = longest_context(known.config, known.look_back.tgt_len)
    reading = choose_reading(
        known.config,
        int(contexts[-1]) if longest is None else min(longest, int(contexts[-1])),
        device,
        wanted.attention_length,
        known.look_back.clamp_len,
        wanted.batch_size,
    )
    with PartialLosses(path.with_suffix(".part")) as kept:
        losses = context_losses(
            loaded.model, ids, contexts, positions.array, reading, device, kept, progress
        )
        _check_vocabulary_by_loss(known, float(losses[-1].mean()), loaded.vocabulary_size)
        found = LossFile(
            losses,
            contexts,
            positions.array,
            name=known.reference,
            corpus=corpus.checksum,
            split=wanted.split,
            vocabulary=_vocabulary(loaded, corpus),
            model=known.weights,
            settings=_settings(known, wanted, corpus, device),
            longest=longest,
        )
        write_loss_file(path, found)
        kept.path.unlink()


def _vocabulary(loaded: LoadedModel, corpus: Corpus) -> str:
    """Fingerprint of the symbols between which the model chooses."""
    own = loaded.tokens
    if own is None or {*own} == {*corpus.vocabulary.symbols}:
        return corpus.vocabulary.fingerprint
    return type(corpus.vocabulary)(own).fingerprint


def _settings(
    known: KnownModel, wanted: Wanted, corpus: Corpus, device: torch.device
) -> dict[str, Any]:
    """How the losses were obtained, and at which contexts the model was never trained."""
    train = known.run and known.run.train
    untrained = train.tgt_len // 2 if train and train.loss == "half" else 0
    return {
        "attention_length": wanted.attention_length,
        "clamp_len": known.look_back.clamp_len,
        "checkpoint": wanted.checkpoint if train else None,
        "memory_reset": train.memory_reset if train else None,
        "untrained_contexts": [context for context in wanted.contexts if context <= untrained],
        "unit": "ppl" if corpus.level == "word" else "bpc",
        "dtype": "fp32",
        "device": str(device),
    }


def _check_vocabulary_by_loss(known: KnownModel, loss: float, size: int) -> None:
    """Refuses an imported model that knows nothing of the text."""
    perplexity = displayed(loss, "ppl")
    if known.run is None and perplexity > WRONG_VOCABULARY * size:
        raise UserError(
            f"{known.reference}: perplexity {perplexity:,.0f} of a vocabulary of {size:,}; "
            "wrong vocabulary?",
            "give the corpus it was trained on",
        )

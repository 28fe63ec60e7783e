"""`eval`, `generate` and `speed` of pretrained models of transformers."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.commands.model_ref import LoadedModel, ModelRef
from txlbench.commands.texts import ScoredText
from txlbench.config.measurements import Measurement
from txlbench.errors import UserError
from txlbench.evaluation.scoring import Score
from txlbench.evaluation.window_scoring import score_windows
from txlbench.models.pretrained.causal_lm import CausalModel

if TYPE_CHECKING:
    from txlbench.commands.evaluate import EvalRequest

WINDOW = 1024
"""Tokens of a window of `eval`, unless the user says or the model has positions for fewer."""
OF_OURS = (
    "batch_size",
    "mem_len",
    "clamp_len",
    "rope_scaling",
    "sinks",
    "same_length",
    "exact",
    "zero_memory",
    "level",
)
"""Options of `eval` that mean nothing to a model that reads windows."""


def causal_model(loaded: LoadedModel) -> CausalModel:
    """The pretrained model; the caller knows that it is one."""
    assert isinstance(loaded.model, CausalModel)
    return loaded.model


def window_measurements(
    request: "EvalRequest", ref: ModelRef, text: ScoredText
) -> list[Measurement]:
    """The passes of `eval`: windows of each attention length, or of `tgt_len` tokens.

    A window moves on by half its length; of an attention length A by A // 4, as the windows of
    models without recurrence do. So every target but the first ones has at least the overlap as
    context.

    Raises:
        UserError: for an option that it has no use for, or a window beyond its positions.
    """
    for name in OF_OURS:
        if getattr(request, name) not in (None, False) and not (
            name == "level" and request.corpus is not None
        ):
            option = name.replace("_", "-")
            raise UserError(
                f"--{option}: {ref.reference} is read in windows without memory", "drop the option"
            )
    limit = ref.capabilities.positions
    length = request.tgt_len or min(WINDOW, limit or WINDOW, max(1, len(text.ids) - 1))
    lengths = tuple(dict.fromkeys(request.attention_lengths))
    ref.check_contexts(lengths or (length,))
    return [
        Measurement(
            regime="windows",
            split=text.split,
            tgt_len=one,
            stride=max(1, one // (4 if lengths else 2)),
            attention_length=one if lengths else None,
            batch_size=1,
        )
        for one in lengths or (length,)
    ]


def score_pretrained(
    loaded: LoadedModel,
    text: ScoredText,
    measurement: Measurement,
    device: torch.device,
    keep: bool,
) -> Score:
    """Scores the text with sliding windows."""
    model, size = causal_model(loaded), loaded.ref.capabilities.vocabulary_size
    at_once = model.windows_at_once(measurement.tgt_len, size, device)
    return score_windows(
        model, text.ids, measurement, device, at_once, model.dtype_name, keep_losses=keep
    )


def continue_text(
    loaded: LoadedModel,
    ids: NDArray[np.int64],
    tokens: int,
    top_k: int | None,
    temperature: float,
    seed: int,
) -> list[int]:
    """Ids that the model adds to `ids`.

    Raises:
        UserError: if prompt and continuation are longer than its positions.
    """
    limit = loaded.ref.capabilities.positions
    if limit is not None and len(ids) + tokens > limit:
        raise UserError(
            f"{loaded.ref.reference}: {len(ids):,} tokens of the prompt and {tokens:,} more are "
            f"beyond its {limit:,} positions",
            "give a shorter prompt, or fewer --tokens",
        )
    return causal_model(loaded).generate(ids, tokens, top_k, temperature, seed)

"""Attention masks for models of transformers, whose layers may have sliding windows."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

SLIDING, FULL = "sliding_attention", "full_attention"


def layer_masks(config: Any, build: Callable[[int | None], Tensor]) -> Tensor | dict[str, Tensor]:
    """What a model takes as `attention_mask`: one, or one by type of layer where there are several.

    transformers takes four-dimensional masks as they are, also in layers that have a sliding
    window, so a mask has to contain it.

    Args:
        config: of the model, from transformers.
        build: gives the mask [B or 1, 1, T, S] of a layer that sees at most so many keys; None
            for a layer without a window of its own.
    """
    text = config.get_text_config(decoder=True)
    window = getattr(text, "sliding_window", None)
    types = set(getattr(text, "layer_types", None) or ()) or {SLIDING if window else FULL}
    masks = {kind: build(window if kind == SLIDING else None) for kind in types}
    return masks if len(masks) > 1 else next(iter(masks.values()))

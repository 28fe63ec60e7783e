"""Which keys a query of a pretrained model sees: a sliding window, and attention sinks."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from txlbench.models.layer_masks import layer_masks
from txlbench.models.mask import mask_TS

POSITIONS = "position_ids"


@dataclass(frozen=True)
class VisibleKeys:
    """The keys that each query sees, in every layer.

    Layers pass on what theirs saw, so a model of n layers reaches back n * (nearest - 1) tokens.
    Positions are those in the window. StreamingLLM (Xiao et al. 2024) shows the same keys, but
    counts positions within its cache, so that sinks stay near however far the text has gone on.

    Attributes:
        nearest: the newest keys, the query's own included.
        sinks: the first keys of the window, BOS included, which all later queries see too. A layer
            with a sliding window of its own sees none beyond it.
    """

    nearest: int
    sinks: int = 0

    def inputs(self, network: Any, tokens_BT: Tensor) -> Mapping[str, Any]:
        """What the network of transformers is given beside the tokens."""
        like = next(network.parameters()).new_empty(())
        masks = layer_masks(network.config, lambda window: self._mask(tokens_BT, window, like))
        given: dict[str, Any] = {"attention_mask": masks}
        if POSITIONS in inspect.signature(network.forward).parameters:
            places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            given[POSITIONS] = places_T.expand_as(tokens_BT)
        return given

    def _mask(self, tokens_BT: Tensor, window: int | None, like: Tensor) -> Tensor:
        """What is added to scores, [B, 1, T, T], in a layer that sees `window` keys at most."""
        rows, length = tokens_BT.shape
        nearest = self.nearest if window is None else min(self.nearest, window)
        added_TT = mask_TS(length, length, nearest, like)
        if self.sinks:
            added_TT[:, : self.sinks] = mask_TS(length, length, window, like)[:, : self.sinks]
        return added_TT.expand(rows, 1, length, length)

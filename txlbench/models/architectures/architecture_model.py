"""An architecture of transformers as a `LanguageModel`, trained from scratch (kind hf)."""

import inspect
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.architectures.architecture import build_architecture
from txlbench.models.architectures.cache_state import CacheState
from txlbench.models.interface import LanguageModel, Observer, autocast_dtype
from txlbench.models.layer_masks import layer_masks
from txlbench.models.mask import mask_reset, mask_TS
from txlbench.models.softmax import at_least_float32


class ArchitectureModel(LanguageModel):
    """A causal language model of transformers (interface: `LanguageModel`).

    `forward` gives logits [B, T, V] where other models give hidden states: some architectures
    scale or cap what comes out of the last matrix, so that losses need the model's whole head.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.name = config.name
        self.attends = not config.is_recurrent
        self.module = build_architecture(config, vocabulary_size)
        self._takes = frozenset(inspect.signature(self.module.forward).parameters)

    @property
    def cache_argument(self) -> str | None:
        """The parameter that takes a cache; None for a model that takes none."""
        return next((name for name in ("cache", "past_key_values") if name in self._takes), None)

    @property
    def takes_positions(self) -> bool:
        """Whether the model can be told where in the stream a segment lies."""
        return "position_ids" in self._takes

    def double(self) -> Self:
        """Weights in float64, which the fast ways to compute mixtures of experts do not know."""
        self.module.set_experts_implementation("eager")
        return super().double()

    def initial_state(self, batch_size: int, span: AttentionSpan) -> CacheState:
        """An empty cache."""
        return CacheState(span, batch_size)

    def forward(
        self, tokens_BT: Tensor, state: CacheState, observer: Observer | None = None
    ) -> tuple[Tensor, CacheState]:
        """Logits [B, T, V] of a segment, and the state for the segment after it."""
        queries, span = tokens_BT.shape[1], state.span
        given: dict[str, Any] = {"use_cache": False, "output_hidden_states": observer is not None}
        carries = span.mem_len > 0 and self.cache_argument is not None
        if carries:
            cache = state.cache(self.module.config)
            given |= {"use_cache": True, str(self.cache_argument): cache}
        if self.takes_positions:
            places_T = torch.arange(state.seen, state.seen + queries, device=tokens_BT.device)
            given["position_ids"] = places_T.expand_as(tokens_BT)
        if self.attends and (state.length or span.same_length):
            given["attention_mask"] = self._masks(tokens_BT, state)
        output = self.module(input_ids=tokens_BT, **given)
        if observer is not None:
            for layer, hidden_BTD in enumerate(output.hidden_states[1:]):
                observer(layer, hidden_BTD, None)
        return output.logits, state.advanced(cache, queries) if carries else state

    def _masks(self, tokens_BT: Tensor, state: CacheState) -> Any:
        """What each query may see in each type of layer."""
        weight = next(self.parameters())
        like = weight.new_empty((), dtype=autocast_dtype(weight))
        length = state.span.attention_length
        return layer_masks(
            self.module.config,
            lambda window: _mask(tokens_BT, state, _shorter(length, window), like),
        )

    def losses(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """Losses [B, T] in nats of what `forward` gave: logits [B, T, V]."""
        logits_NV = at_least_float32(hidden_BTD.flatten(0, 1))
        losses_N = cross_entropy(logits_NV, targets_BT.flatten(), reduction="none")
        return losses_N.view(targets_BT.shape)

    def log_probs(self, hidden_BD: Tensor) -> Tensor:
        """Log-probabilities [B, V] of what `forward` gave: logits [B, V]."""
        return log_softmax(at_least_float32(hidden_BD), dim=-1)


def _shorter(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _mask(tokens_BT: Tensor, state: CacheState, length: int | None, like: Tensor) -> Tensor:
    """What is added to scores, [B or 1, 1, T, S]: -inf where a query must not look, else 0."""
    queries = tokens_BT.shape[1]
    added_TS = mask_TS(queries, state.length + queries, length, like)
    added = mask_reset(added_TS, state.valid_len_B)
    return added.view(-1, 1, *added.shape[-2:])

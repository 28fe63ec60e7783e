"""The interface of all models: training, evaluation and RECL know nothing of their kind.

Names of tensors end in their shape. The letters, everywhere in the package:

    B batch (streams)       T queries, the tokens of a segment   M tokens in memory
    S keys, M + T           H heads       K size of a head       D d_model
    F d_inner               E d_embed     V vocabulary           N layers
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError


class State(Protocol):
    """What a model remembers between segments; never written to, `forward` returns a new one."""

    @property
    def span(self) -> AttentionSpan: ...

    def tensors(self) -> Mapping[str, Tensor]:
        """The remembered tensors by name, for a checkpoint; each has the batch as dimension 0."""

    def replace(self, tensors: Mapping[str, Tensor]) -> "State":
        """The same kind of state with other tensors."""

    def reset(self, rows_B: Tensor) -> "State":
        """The state after a memory reset of some streams, a bool each: those start afresh."""


class Observer(Protocol):
    """Receives what a forward pass computes on its way."""

    def __call__(self, layer: int, hidden_BTD: Tensor, attention_HBTS: Tensor | None) -> None: ...


@dataclass(frozen=True)
class HiddenObserver:
    """Receives each layer's states alone, so that attention may be computed the fast way."""

    observe: Callable[[int, Tensor], None]

    def __call__(self, layer: int, hidden_BTD: Tensor, attention_HBTS: Tensor | None) -> None:  # noqa: ARG002
        self.observe(layer, hidden_BTD)


class ScoreObserver(Observer, ABC):
    """An observer that is shown the terms of each layer's scores too, before its attention.

    Only by a pass from a plain state: a KV cache keeps positions summed up.
    """

    @abstractmethod
    def see_terms(self, layer: int, terms_HBTS: Mapping[str, Tensor]) -> None:
        """Receives what the scores are the sum of, by letter; see `Encoding.score_terms`."""


def sees_attention(observer: Observer | None) -> bool:
    """Whether the probabilities themselves are wanted."""
    return observer is not None and not isinstance(observer, HiddenObserver)


class LanguageModel(nn.Module, ABC):
    """A model of text as the rest of the suite sees it.

    Attributes:
        softmax: gives losses and log-probabilities of hidden states; see `models.softmax`.
        kept_dtype: the number format in which evaluation keeps keys and values; None for that of
            products.
    """

    softmax: Any
    kept_dtype: torch.dtype | None = None

    @property
    def reads_host_ids(self) -> bool:
        """Whether `forward` and `losses` take ids on the host, and then let no device wait."""
        return False

    @abstractmethod
    def initial_state(self, batch_size: int, span: AttentionSpan) -> State:
        """An empty memory for `batch_size` streams."""

    def evaluation_state(self, state: Any) -> State:
        """The state in the form that evaluates fastest; by default as it is.

        A pass in evaluation mode may write into it: only the state that `forward` returns is of
        use then, or a `clone()` taken before. Weights must stay as they are in the meantime.
        """
        remembered: State = state
        return remembered

    def keep_in(self, precision: str) -> None:
        """Lets evaluation keep keys and values in fp16 or bf16.

        Raises:
            UserError: if it keeps none.
        """
        raise UserError(
            f"--precision {precision}: is of keys and values, which this model does not keep",
            "drop the option",
        )

    @abstractmethod
    def forward(
        self, tokens_BT: Tensor, state: Any, observer: Observer | None = None
    ) -> tuple[Tensor, State]:
        """Hidden states [B, T, D] of a segment, and the state for the segment after it.

        The new state carries no gradient; the old one, which must come from this model, stays
        as it is.
        """

    def attention_path(self, state: Any) -> str | None:  # noqa: ARG002
        """On which path attention is computed from `state`, as records say it; None without."""
        return None

    def memory_loss(self, state: Any) -> Tensor | None:  # noqa: ARG002
        """A loss of what was remembered, beside that of the targets, on their scale of one mean."""
        return None

    def losses(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """Losses [B, T] in nats, one a target, in token order."""
        losses: Tensor = self.softmax.losses(hidden_BTD.flatten(0, 1), targets_BT.flatten())
        return losses.view(targets_BT.shape)

    def log_probs(self, hidden_BD: Tensor) -> Tensor:
        """Log-probabilities [B, V] of the next token."""
        log_probs: Tensor = self.softmax.log_probs(hidden_BD)
        return log_probs


def multiplies_bf16(device: torch.device) -> bool:
    """Whether products of bf16 are the device's own, rather than emulated in float32."""
    return device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()


DTYPE_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def dtype_name(model: nn.Module) -> str:
    """The number format of keys and values here and now, as records tell it.

    That of products, unless they are kept in less.
    """
    kept: torch.dtype | None = getattr(model, "kept_dtype", None)
    dtype = kept or autocast_dtype(next(model.parameters()))
    return DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def autocast_dtype(reference: Tensor) -> torch.dtype:
    """The number format of products: autocast's where it is on, else that of the parameters.

    Args:
        reference: a tensor with the device and dtype of the parameters.
    """
    kind = reference.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else reference.dtype

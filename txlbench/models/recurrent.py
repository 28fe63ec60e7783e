"""What LSTM and QRNN language models share: layers over time, state as memory, dropout sites.

Dropout as in AWD-LSTM (Merity et al. 2017): on whole words of the embedding (`dropoute`), on the
input (`dropouti`), between layers (`dropouth`) and on the output (`dropout`), each mask shared by
all tokens of a segment (variational dropout).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.dropout import VariationalDropout
from txlbench.models.embedding import Embedding
from txlbench.models.interface import LanguageModel, Observer, View
from txlbench.models.softmax import AdaptiveSoftmax

LayerState = tuple[Tensor, ...]


@dataclass(frozen=True)
class RecurrentState:
    """What each layer remembers, tensors with the batch first, without gradient.

    Attributes:
        view: with mem_len 0 every segment starts from zero; any other mem_len keeps the state,
            which holds all that came before.
    """

    layers: tuple[LayerState, ...]
    view: View

    def tensors(self) -> Mapping[str, Tensor]:
        return {
            f"layer{index}.{part}": tensor
            for index, layer in enumerate(self.layers)
            for part, tensor in enumerate(layer)
        }

    def replace(self, tensors: Mapping[str, Tensor]) -> "RecurrentState":
        layers = tuple(
            tuple(tensors[f"layer{index}.{part}"] for part in range(len(layer)))
            for index, layer in enumerate(self.layers)
        )
        return RecurrentState(layers, self.view)

    def forget(self, rows_B: Tensor) -> "RecurrentState":
        """Zeros in those streams."""
        layers = tuple(
            tuple(
                tensor.masked_fill(rows_B.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1)), 0)
                for tensor in layer
            )
            for layer in self.layers
        )
        return RecurrentState(layers, self.view)


class RecurrentLayer(nn.Module, ABC):
    """One layer that reads a segment from left to right."""

    @abstractmethod
    def initial(self, batch_size: int) -> LayerState:
        """Zeros."""

    def weights(self) -> Any:
        """What dropout makes of the weights in one forward pass, for `read`; None if nothing."""
        return None

    @abstractmethod
    def read(self, input_BTD: Tensor, state: LayerState, weights: Any) -> tuple[Tensor, LayerState]:
        """Outputs [B, T, D], and the state after the last token."""

    def forward(
        self, input_BTD: Tensor, state: LayerState, stride: int
    ) -> tuple[Tensor, LayerState]:
        """Outputs [B, T, D], and the state after the first `stride` tokens."""
        weights = self.weights()
        first_BTD, after = self.read(input_BTD[:, :stride], state, weights)
        if stride >= input_BTD.shape[1]:
            return first_BTD, after
        rest_BTD, _ = self.read(input_BTD[:, stride:], after, weights)
        return torch.cat([first_BTD, rest_BTD], dim=1), after


class RecurrentModel(LanguageModel):
    """Embedding, recurrent layers, softmax (interface: `LanguageModel`)."""

    def __init__(
        self, config: ModelConfig, vocabulary_size: int, layers: list[RecurrentLayer]
    ) -> None:
        super().__init__()
        self.embedding = Embedding(config, vocabulary_size)
        self.layers = nn.ModuleList(layers)
        self.dropout_input = VariationalDropout(config.input_dropout)
        self.dropout_hidden = VariationalDropout(config.hidden_dropout)
        self.dropout_output = VariationalDropout(config.dropout)
        self.softmax = AdaptiveSoftmax(config, self.embedding)

    def initial_state(self, batch_size: int, view: View) -> RecurrentState:
        """Zeros in every layer."""
        layers: Any = self.layers
        return RecurrentState(tuple(layer.initial(batch_size) for layer in layers), view)

    def forward(
        self, tokens_BT: Tensor, state: RecurrentState, observer: Observer | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """See `LanguageModel.forward`."""
        stride = state.view.stride or tokens_BT.shape[1]
        hidden_BTD = self.dropout_input(self.embedding(tokens_BT))
        after = []
        for index, layer in enumerate(self.layers):
            if index:
                hidden_BTD = self.dropout_hidden(hidden_BTD)
            hidden_BTD, layer_state = layer(hidden_BTD, state.layers[index], stride)
            after.append(tuple(tensor.detach() for tensor in layer_state))
            if observer is not None:
                observer(index, hidden_BTD, None)
        carried = state if state.view.mem_len == 0 else RecurrentState(tuple(after), state.view)
        return self.dropout_output(hidden_BTD), carried

    def losses(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """See `LanguageModel.losses`."""
        losses = self.softmax.losses(hidden_BTD.flatten(0, 1), targets_BT.flatten())
        return losses.view(targets_BT.shape)

    def log_probs(self, hidden_BD: Tensor) -> Tensor:
        """See `LanguageModel.log_probs`."""
        return self.softmax.log_probs(hidden_BD)

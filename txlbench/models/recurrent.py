"""Recurrent language models: LSTM with weight drop (AWD-LSTM, Merity et al. 2017), and QRNN
(Bradbury et al. 2016), its recurrence as a parallel scan. Their hidden state is their memory.

Dropout as in AWD-LSTM: on whole words of the embedding (`dropoute`), on the input (`dropouti`),
between layers (`dropouth`) and on the output (`dropout`), each mask shared by all tokens of a
segment (variational dropout).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.dropout import Dropout, VariationalDropout
from txlbench.models.embedding import Embedding
from txlbench.models.interface import LanguageModel, Observer
from txlbench.models.softmax import AdaptiveSoftmax

LayerState = tuple[Tensor, ...]


@dataclass(frozen=True)
class RecurrentState:
    """What each layer remembers, tensors with the batch first, without gradient.

    Attributes:
        span: with mem_len 0 every segment starts from zero; any other mem_len keeps the state,
            which holds all that came before.
    """

    layers: tuple[LayerState, ...]
    span: AttentionSpan

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
        return RecurrentState(layers, self.span)

    def reset(self, rows_B: Tensor) -> "RecurrentState":
        """The same state with zeros in those streams."""
        layers = tuple(
            tuple(
                tensor.masked_fill(rows_B.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1)), 0)
                for tensor in layer
            )
            for layer in self.layers
        )
        return RecurrentState(layers, self.span)


class RecurrentLayer(nn.Module, ABC):
    """One layer that reads a segment from left to right."""

    @abstractmethod
    def initial(self, batch_size: int) -> LayerState:
        """The state before the first token: zeros."""

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
        self.dropout_input: nn.Module = VariationalDropout(config.input_dropout)
        self.dropout_hidden: nn.Module = VariationalDropout(config.hidden_dropout)
        self.dropout_output: nn.Module = VariationalDropout(config.dropout)
        self.output_norm: nn.Module = nn.Identity()
        self.softmax = AdaptiveSoftmax(config, self.embedding)

    @property
    def reads_host_ids(self) -> bool:
        """See `LanguageModel.reads_host_ids`."""
        return self.embedding.counts_tokens

    def initial_state(self, batch_size: int, span: AttentionSpan) -> RecurrentState:
        """A state of zeros in every layer."""
        layers: Any = self.layers
        return RecurrentState(tuple(layer.initial(batch_size) for layer in layers), span)

    def forward(
        self, tokens_BT: Tensor, state: RecurrentState, observer: Observer | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """See `LanguageModel.forward`."""
        stride = state.span.stride or tokens_BT.shape[1]
        hidden_BTD = self.dropout_input(self.embedding(tokens_BT))
        after = []
        for index, layer in enumerate(self.layers):
            if index:
                hidden_BTD = self.dropout_hidden(hidden_BTD)
            hidden_BTD, layer_state = layer(hidden_BTD, state.layers[index], stride)
            # Copies: a part of a segment's states would keep all of them.
            after.append(tuple(tensor.detach().clone() for tensor in layer_state))
            if observer is not None:
                observer(index, hidden_BTD, None)
        carried = state if state.span.mem_len == 0 else RecurrentState(tuple(after), state.span)
        return self.dropout_output(self.output_norm(hidden_BTD)), carried


class LSTMLayer(RecurrentLayer):
    """PyTorch's LSTM kernel; `wdrop` zeroes entries of the hidden-to-hidden matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.d_model
        self.w_ih = nn.Parameter(torch.empty(4 * size, size))
        self.w_hh = nn.Parameter(torch.empty(4 * size, size))
        self.b_ih = nn.Parameter(torch.empty(4 * size))
        self.b_hh = nn.Parameter(torch.empty(4 * size))
        self.weight_drop = Dropout(config.wdrop, batch_dim=None)

    def initial(self, batch_size: int) -> LayerState:
        zeros = self.w_hh.new_zeros(batch_size, self.w_hh.shape[1])
        return zeros, zeros

    def weights(self) -> list[Tensor]:
        return [self.w_ih, self.weight_drop(self.w_hh), self.b_ih, self.b_hh]

    def read(
        self, input_BTD: Tensor, state: LayerState, weights: list[Tensor]
    ) -> tuple[Tensor, LayerState]:
        before = [tensor[None].to(input_BTD.dtype) for tensor in state]
        output_BTD, hidden, cell = torch.lstm(
            input_BTD, before, weights, True, 1, 0.0, self.training, False, True
        )
        return output_BTD, (hidden[0], cell[0])


class LSTM(RecurrentModel):
    """An LSTM language model: n_layer layers of d_model units."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        # PyTorch lets cuDNN round an LSTM's float32 products to TF32; fp32 shall mean fp32.
        torch.backends.cudnn.allow_tf32 = False
        layers: list[RecurrentLayer] = [LSTMLayer(config) for _ in range(config.n_layer)]
        super().__init__(config, vocabulary_size, layers)


def linear_scan(decay_BTD: Tensor, added_BTD: Tensor) -> Tensor:
    """c_t = decay_t * c_{t-1} + added_t from c_{-1} = 0, for all t: [B, T, D].

    Steps of 1, 2, 4, ... tokens are joined (Hillis and Steele 1986): log2(T) passes over the
    segment instead of T, and only products of decays, so nothing overflows where decay is in
    [0, 1].
    """
    reach = 1
    while reach < added_BTD.shape[1]:
        earlier = pad(added_BTD[:, :-reach], (0, 0, reach, 0))
        added_BTD = torch.addcmul(added_BTD, decay_BTD, earlier)
        decay_BTD = torch.cat(
            [decay_BTD[:, :reach], decay_BTD[:, reach:] * decay_BTD[:, :-reach]], dim=1
        )
        reach *= 2
    return added_BTD


class QRNNLayer(RecurrentLayer):
    """Gates from the last `window` inputs, and a gated running mean of their candidates.

    z = tanh(W_z x), f = sigmoid(W_f x), o = sigmoid(W_o x); c_t = f_t c_{t-1} + (1 - f_t) z_t;
    output o_t c_t. The state is c and the window's earlier inputs.
    """

    def __init__(self, config: ModelConfig, window: int) -> None:
        super().__init__()
        self.window = window
        self.w_gates = nn.Parameter(torch.empty(3 * config.d_model, window * config.d_model))
        self.b_gates = nn.Parameter(torch.empty(3 * config.d_model))

    def initial(self, batch_size: int) -> LayerState:
        size = self.w_gates.shape[0] // 3
        cell_BD = self.w_gates.new_zeros(batch_size, size)
        return cell_BD, self.w_gates.new_zeros(batch_size, self.window - 1, size)

    def read(
        self,
        input_BTD: Tensor,
        state: LayerState,
        weights: None,  # noqa: ARG002
    ) -> tuple[Tensor, LayerState]:
        cell_BD, earlier = state
        length = input_BTD.shape[1]
        seen = torch.cat([earlier.to(input_BTD.dtype), input_BTD], dim=1)
        spans = [seen[:, offset : offset + length] for offset in range(self.window)]
        gates = linear(torch.cat(spans, dim=-1), self.w_gates, self.b_gates)
        candidate, forget, output = gates.to(torch.promote_types(gates.dtype, torch.float32)).chunk(
            3, -1
        )
        forget = forget.sigmoid()
        added = (1 - forget) * candidate.tanh()
        first = torch.addcmul(added[:, :1], forget[:, :1], cell_BD.to(added.dtype)[:, None])
        cells_BTD = linear_scan(forget, torch.cat([first, added[:, 1:]], dim=1))
        after = (cells_BTD[:, -1], seen[:, seen.shape[1] - self.window + 1 :])
        return output.sigmoid() * cells_BTD, after


class QRNN(RecurrentModel):
    """A QRNN language model; its first layer sees two inputs at a time, the others one."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        layers: list[RecurrentLayer] = [
            QRNNLayer(config, window=1 if index else 2) for index in range(config.n_layer)
        ]
        super().__init__(config, vocabulary_size, layers)

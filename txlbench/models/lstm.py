"""LSTM language model with weight drop (AWD-LSTM, Merity et al. 2017)."""

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.dropout import Dropout
from txlbench.models.recurrent import LayerState, RecurrentLayer, RecurrentModel


class LSTMLayer(RecurrentLayer):
    """PyTorch's LSTM kernel; `wdrop` zeroes entries of the hidden-to-hidden matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.d_model
        self.w_ih = nn.Parameter(torch.empty(4 * size, size))
        self.w_hh = nn.Parameter(torch.empty(4 * size, size))
        self.b_ih = nn.Parameter(torch.empty(4 * size))
        self.b_hh = nn.Parameter(torch.empty(4 * size))
        self.weight_drop = Dropout(config.wdrop)

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
    """n_layer layers of d_model units."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        layers: list[RecurrentLayer] = [LSTMLayer(config) for _ in range(config.n_layer)]
        super().__init__(config, vocabulary_size, layers)

"""QRNN language model (Bradbury et al. 2016), its recurrence as a parallel scan."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from txlbench.config.model import ModelConfig
from txlbench.models.recurrent import LayerState, RecurrentLayer, RecurrentModel


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
    """n_layer layers of d_model units; the first sees two inputs at a time, the others one."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        layers: list[RecurrentLayer] = [
            QRNNLayer(config, window=1 if index else 2) for index in range(config.n_layer)
        ]
        super().__init__(config, vocabulary_size, layers)

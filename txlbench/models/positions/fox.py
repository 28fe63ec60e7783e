"""FoX: attention that forgets by gates that tokens choose (Lin et al. 2025)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from txlbench.config.model import ModelConfig
from txlbench.models.positions.encoding import Encoding

OPEN = 5.0
"""Added to what the gates' sigmoid is taken of: at first a token lets .993 of the past through."""


class FoxEncoding(Encoding):
    """q_i . k_j / sqrt(d_head) + the sum of log f_t over the tokens t of (j, i].

    f_t = sigmoid(w . x_t + b + OPEN) of each layer and head, where x_t is the layer's input, as
    keys have it. Memory keeps x_t, so that training takes the gates anew by its present weights, as
    it does keys and values; a KV cache keeps the gates. `OPEN` is not the paper's, which starts at
    its long memories by data; without it half of the past is forgotten at every token at first.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.gates = nn.ModuleList(
            nn.Linear(config.d_model, config.n_head) for _ in range(config.n_layer)
        )

    def log_gates(self, layer: int, input_BLD: Tensor) -> Tensor:
        """log f of each token and head, in float32 at least: [H, B, L]."""
        opening_BLH = self.gates[layer](input_BLD)
        exact = torch.promote_types(opening_BLH.dtype, torch.float32)
        return logsigmoid(opening_BLH.to(exact) + OPEN).permute(2, 0, 1)

"""Language models with a matrix-valued recurrent state: gated linear attention (`gla`, Yang et al.
2023) and Gated DeltaNet (`gated-delta`, Yang et al. 2024).

Layers are pre-norm: x + mixer(norm(x)), then x + feed_forward(norm(x)), and one norm more before
the softmax. Departures from both papers, so that a row differs from a Transformer-XL row in how
tokens are mixed: layer norm and the suite's feed-forward part (ReLU) in place of RMS norm and
SwiGLU, and the suite's embedding and initial weights. Values have all of n_head * d_head, keys half
of it, so that a layer has the weights of an attention layer.
"""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu, softplus

from txlbench.config.kinds import GATE_RANK, SHORT_CONVOLUTION
from txlbench.config.model import ModelConfig
from txlbench.models.dropout import dropout_for
from txlbench.models.linear_attention import gated_delta_rule, gated_linear_attention
from txlbench.models.recurrent import LayerState, RecurrentLayer, RecurrentModel
from txlbench.models.transformer import FeedForward

LENGTH_EPS = 1e-6
"""Added to squared lengths of queries and keys, as in flash-linear-attention and transformers."""


class GatedMixer(nn.Module):
    """Queries, keys, values and gates of one layer, and what is read from its state.

    One product makes all projections. What is read is normalised head by head (RMS, weight shared
    by heads) and gated: norm(o) * silu(W_g x), then W_o. The GLA paper has layer norm there, its
    released code RMS.
    """

    def __init__(self, config: ModelConfig, extra: int) -> None:
        super().__init__()
        self.heads = config.n_head
        self.key_size, self.value_size = config.key_size, config.head_size
        self.keys, self.values = self.heads * self.key_size, self.heads * self.value_size
        self.sizes = [2 * self.keys + self.values, self.values, extra]
        self.in_net = nn.Linear(config.d_model, sum(self.sizes), bias=False)
        self.read_norm = nn.RMSNorm(self.value_size, eps=1e-6)
        self.o_net = nn.Linear(self.values, config.d_model, bias=False)

    def initial(self, batch_size: int) -> LayerState:
        """A state of zeros: [B, H, K, V]."""
        size = (batch_size, self.heads, self.key_size, self.value_size)
        return (self.o_net.weight.new_zeros(size),)

    def forward(self, input_BTD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Mixed tokens [B, T, D], and the state after the last of them."""
        projected = self.in_net(input_BTD)
        with torch.autocast(projected.device.type, enabled=False):
            # Sums of many decays and products of many steps: float32 at least.
            exact = projected.to(torch.promote_types(projected.dtype, torch.float32))
            mixed_BTX, gate_BTX, extra_BTX = exact.split(self.sizes, -1)
            read_BHTV, after = self.read(mixed_BTX, extra_BTX, state)
            read_BTHV = self.read_norm(read_BHTV.transpose(1, 2))
            gated_BTX = read_BTHV.flatten(2) * silu(gate_BTX)
        out: Tensor = self.o_net(gated_BTX)
        return out, after

    @abstractmethod
    def read(
        self, mixed_BTX: Tensor, extra_BTX: Tensor, state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """What queries read [B, H, T, V], and the state after the last token.

        Args:
            mixed_BTX: queries, keys and values of all heads, one behind the other.
            extra_BTX: the further projections that the rule asked for.
        """

    def by_head(self, mixed_BTX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [B, H, T, K] and values [B, H, T, V]."""
        parts = mixed_BTX.split([self.keys, self.keys, self.values], -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return query, key, value


class GLAMixer(GatedMixer):
    """Gated linear attention (Yang et al. 2023, section 4.4).

    Log decays g = logsigmoid(W_2 W_1 x + b) / 16, one for each entry of the key, W_1 of rank 16.
    """

    TEMPERATURE = 16.0

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, GATE_RANK)
        self.decay_net = nn.Linear(GATE_RANK, self.keys)

    def read(
        self, mixed_BTX: Tensor, extra_BTX: Tensor, state: LayerState
    ) -> tuple[Tensor, LayerState]:
        query, key, value = self.by_head(mixed_BTX)
        decay = logsigmoid(self.decay_net(extra_BTX)) / self.TEMPERATURE
        decay_BHTK = decay.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query = query * self.key_size**-0.5
        read, after = gated_linear_attention(query, key, value, decay_BHTK, state[0])
        return read, (after,)


class GatedDeltaMixer(GatedMixer):
    """Gated DeltaNet (Yang et al. 2024, section 3.4).

    Queries, keys and values pass a causal convolution of 4 tokens a channel and SiLU, queries and
    keys are brought to length 1. Decays g = -A softplus(W_a x + b), writing strengths
    sigmoid(W_b x), both one a head. The state has the convolution's earlier inputs too.
    Departure: keys of d_model / 2 in place of 3/4 d_model, values of twice the keys as there.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, 2 * config.n_head)
        self.conv_weight = nn.Parameter(torch.empty(SHORT_CONVOLUTION, self.sizes[0]))
        self.decay_rate = nn.Parameter(torch.empty(self.heads))
        self.decay_bias = nn.Parameter(torch.empty(self.heads))

    def initialise(self) -> None:
        """As released: log A of A uniform below 16, b such that softplus(b) is log-uniform between
        0.001 and 0.1, convolutions as PyTorch's."""
        bound = SHORT_CONVOLUTION**-0.5
        nn.init.uniform_(self.conv_weight, -bound, bound)
        nn.init.uniform_(self.decay_rate, 0.01, 16).log_()
        steps = torch.empty_like(self.decay_bias).uniform_(math.log(1e-3), math.log(0.1)).exp_()
        self.decay_bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def initial(self, batch_size: int) -> LayerState:
        earlier = self.conv_weight.new_zeros(batch_size, SHORT_CONVOLUTION - 1, self.sizes[0])
        return *super().initial(batch_size), earlier

    def read(
        self, mixed_BTX: Tensor, extra_BTX: Tensor, state: LayerState
    ) -> tuple[Tensor, LayerState]:
        seen = torch.cat([state[1], mixed_BTX], 1)
        query, key, value = self.by_head(silu(self._convolved(seen)))
        decay_BTH, beta_BTH = extra_BTX.chunk(2, -1)
        decay_BTH = -self.decay_rate.exp() * softplus(decay_BTH + self.decay_bias)
        read, after = gated_delta_rule(
            _unit(query) * self.key_size**-0.5,
            _unit(key),
            value,
            decay_BTH.transpose(1, 2),
            beta_BTH.sigmoid().transpose(1, 2),
            state[0],
        )
        return read, (after, seen[:, 1 - SHORT_CONVOLUTION :])

    def _convolved(self, seen_BTX: Tensor) -> Tensor:
        """Weighted sums of each channel's last four inputs, from the fourth on."""
        length = seen_BTX.shape[1] - SHORT_CONVOLUTION + 1
        total = seen_BTX[:, :length] * self.conv_weight[0]
        for offset in range(1, SHORT_CONVOLUTION):
            input_BTX = seen_BTX[:, offset : offset + length]
            total = torch.addcmul(total, input_BTX, self.conv_weight[offset])
        return total


def _unit(values: Tensor) -> Tensor:
    """Vectors at length 1."""
    return values * (values.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt()


class GatedBlock(RecurrentLayer):
    """One pre-norm layer: a mixer and the feed-forward part, each with a residual connection."""

    def __init__(self, config: ModelConfig, mixer: GatedMixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.mixer_norm = nn.LayerNorm(config.d_model)
        self.mixer_dropout = dropout_for(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def initial(self, batch_size: int) -> LayerState:
        return self.mixer.initial(batch_size)

    def read(self, input_BTD: Tensor, state: LayerState, weights: Any) -> tuple[Tensor, LayerState]:  # noqa: ARG002
        mixed_BTD, after = self.mixer(self.mixer_norm(input_BTD), state)
        hidden_BTD = input_BTD + self.mixer_dropout(mixed_BTD)
        return hidden_BTD + self.feed_forward(self.feed_forward_norm(hidden_BTD)), after


class GatedRecurrentModel(RecurrentModel):
    """Layers of one mixer; dropout where a transformer has it, at the rate `dropout`."""

    mixer: type[GLAMixer] | type[GatedDeltaMixer]

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        layers: list[RecurrentLayer] = [
            GatedBlock(config, self.mixer(config)) for _ in range(config.n_layer)
        ]
        super().__init__(config, vocabulary_size, layers)
        self.dropout_input = dropout_for(config)
        self.dropout_hidden = nn.Identity()  # layers have their own
        self.dropout_output = dropout_for(config)
        self.output_norm = nn.LayerNorm(config.d_model)


class GatedLinearAttention(GatedRecurrentModel):
    """A model of gated linear attention."""

    mixer = GLAMixer


class GatedDeltaNet(GatedRecurrentModel):
    """A model of the gated delta rule."""

    mixer = GatedDeltaMixer

"""A transformer layer as a single new token of each stream passes through it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from txlbench.models.block import Block
from txlbench.models.positions.tables import Distances
from txlbench.models.positions.terms import Terms

Norm = tuple[tuple[int, ...], Tensor, Tensor, float]
"""Shape, weight, bias and epsilon, as `layer_norm` takes them."""


@dataclass(frozen=True)
class StepLayer:
    """The block's own tensors, as they are multiplied.

    Attributes:
        pre_lnorm: whether norms come before attention and feed-forward, not after.
        biases_2H1K: what queries get for content, and what for position.
        query, key_value, out: weights of attention.
        inner, outer: weight and bias of the feed-forward.
    """

    pre_lnorm: bool
    biases_2H1K: Tensor
    query: Tensor
    key_value: Tensor
    out: Tensor
    inner: tuple[Tensor, Tensor]
    outer: tuple[Tensor, Tensor]
    attention_norm: Norm
    feed_forward_norm: Norm

    @classmethod
    def of(cls, block: Block, terms: Terms) -> "StepLayer":
        """Without copies but for the biases, which are small."""
        attention, feed_forward = block.attention, block.feed_forward
        none = attention.q_net.weight.new_zeros(attention.heads, attention.size)
        biases = (terms.content_bias_HK, terms.position_bias_HK)
        return cls(
            block.pre_lnorm,
            torch.stack([none if bias is None else bias for bias in biases])[:, :, None],
            attention.q_net.weight,
            attention.kv_net.weight,
            attention.o_net.weight,
            (feed_forward.inner.weight, feed_forward.inner.bias),
            (feed_forward.outer.weight, feed_forward.outer.bias),
            _norm(block.attention_norm),
            _norm(block.feed_forward_norm),
        )

    def step(
        self, input_B1D: Tensor, new_2HBK: Tensor, seen_2HBSK: Tensor, table: Distances | None
    ) -> Tensor:
        """The layer's output [B, 1, D].

        Args:
            new_2HBK: where the token's key and value are written.
            seen_2HBSK: the keys and values that it sees, its own the last.
            table: scores distances over sqrt(d_head); None where scores know none.
        """
        normed_B1D = layer_norm(input_B1D, *self.attention_norm) if self.pre_lnorm else input_B1D
        hidden_B1D = self._attend(normed_B1D, new_2HBK, seen_2HBSK, table).add_(input_B1D)
        if self.pre_lnorm:
            normed_B1D = layer_norm(hidden_B1D, *self.feed_forward_norm)
            return self._feed_forward(normed_B1D).add_(hidden_B1D)
        hidden_B1D = layer_norm(hidden_B1D, *self.attention_norm)
        return layer_norm(self._feed_forward(hidden_B1D).add_(hidden_B1D), *self.feed_forward_norm)

    def _attend(
        self, normed_B1D: Tensor, new_2HBK: Tensor, seen_2HBSK: Tensor, table: Distances | None
    ) -> Tensor:
        _, heads, batch, size = new_2HBK.shape
        made_B2HK = linear(normed_B1D, self.key_value).view(batch, 2, heads, size)
        new_2HBK.copy_(made_B2HK.permute(1, 2, 0, 3))
        query_HBK = linear(normed_B1D, self.query).view(batch, heads, size).transpose(0, 1)
        content, position = (query_HBK + self.biases_2H1K).unsqueeze(3).unbind(0)
        key, value = seen_2HBSK
        added = None if table is None else table.position(position)[..., -key.shape[2] :]
        mixed_HB1K = scaled_dot_product_attention(content, key, value, added)
        joined_B1I = mixed_HB1K.transpose(0, 1).reshape(batch, 1, heads * size)
        return linear(joined_B1I, self.out)

    def _feed_forward(self, normed_B1D: Tensor) -> Tensor:
        return linear(linear(normed_B1D, *self.inner).relu_(), *self.outer)


def _norm(norm: nn.LayerNorm) -> Norm:
    return norm.normalized_shape, norm.weight, norm.bias, norm.eps

"""A transformer layer: attention and feed-forward, each with residual and layer norm."""

from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.attention import Attention, Scoring
from txlbench.models.computing import computing_dtype
from txlbench.models.dropout import dropout_for


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between; dropout inside and outside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.inner_size)
        self.outer = nn.Linear(config.inner_size, config.d_model)
        self.dropout_inner = dropout_for(config)
        self.dropout_outer = dropout_for(config)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        # Rows, not streams: a map of [B, T, D] gives a view, and to write into a view costs
        # copies in its gradient.
        inner_NF = self.inner(hidden_BTD.flatten(0, 1))
        inner_BTF = self.dropout_inner.after_relu(inner_NF, hidden_BTD.shape[:2])
        out: Tensor = self.dropout_outer(self.outer(inner_BTF))
        return out


class Block(nn.Module):
    """One layer; `pre_lnorm` normalises before each part, keys and values with the queries.

    The official code normalises keys and values but not the queries there (erratum E20).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_lnorm = config.pre_lnorm
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention_dropout = dropout_for(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def forward(
        self, input_BTD: Tensor, entering_BTD: Tensor, context_BSD: Tensor, scoring: Scoring
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the layer's output [B, T, D] and, if watched, its attention [H, B, T, S].

        Args:
            entering_BTD, context_BSD: what `entering` makes of the input; behind memory.
        """
        if self.pre_lnorm:
            context_BSD = self.normed(context_BSD)
            entering_BTD = context_BSD[:, -input_BTD.shape[1] :]
        mixed_BTD, attention = self.attention(entering_BTD, context_BSD, scoring)
        return self.after_attention(input_BTD, mixed_BTD), attention

    def entering(self, input_BTD: Tensor) -> Tensor:
        """What memory keeps of a layer's input: unless it is to be normalised, as multiplied."""
        return input_BTD if self.pre_lnorm else input_BTD.to(computing_dtype(input_BTD))

    def normed(self, hidden_BLD: Tensor) -> Tensor:
        """What queries, keys and values are computed from."""
        return self.attention_norm(hidden_BLD) if self.pre_lnorm else hidden_BLD

    def after_attention(self, input_BTD: Tensor, mixed_BTD: Tensor) -> Tensor:
        """The layer's output [B, T, D] from its input and what attention made of it."""
        hidden_BTD = input_BTD + self.attention_dropout(mixed_BTD)
        if self.pre_lnorm:
            return hidden_BTD + self.feed_forward(self.feed_forward_norm(hidden_BTD))
        hidden_BTD = self.attention_norm(hidden_BTD)
        return self.feed_forward_norm(hidden_BTD + self.feed_forward(hidden_BTD))

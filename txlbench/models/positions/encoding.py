"""What a position encoding may do: add to the input, add to a layer's input, score keys."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from txlbench.config.model import ModelConfig


class Scores(NamedTuple):
    """How queries score keys: (query . key + position) / sqrt(d_head) + bias.

    Left in parts so that attention can compute them in one buffer, or inside a fused kernel.
    """

    query_HBTK: Tensor
    position_HBTS: Tensor | None = None
    bias_HBTS: Tensor | None = None


class Encoding(nn.Module):
    """Positions enter through three hooks that default to nothing.

    A subclass is built from the model's configuration alone, owns its parameters for all
    layers, and overrides the hooks it needs.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        """The embedded tokens with what the encoding adds to them, before dropout."""
        return hidden_BTD

    def add_to_layer(self, layer: int, hidden_BTD: Tensor) -> Tensor:
        """The input of `layer` with what the encoding adds to it; memory keeps the sum."""
        return hidden_BTD

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Any:
        """What all layers share in one forward pass, handed to `score` as `shared`.

        Args:
            keys: S, the number of keys.
            clamp_len: distances beyond it count as clamp_len.
            like: a tensor with the device and dtype of the parameters.
        """
        return None

    def score(self, layer: int, query_HBTK: Tensor, shared: Any) -> Scores:
        """How the queries of `layer` score its keys; by content alone unless overridden."""
        return Scores(query_HBTK)

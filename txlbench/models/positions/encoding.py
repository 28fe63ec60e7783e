"""What a position encoding may do: add to the input, add to a layer's input, score keys.

How an encoding scores, as products that attention can compute piece by piece.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.positions.tables import Distances, ScaledTables


class Terms(NamedTuple):
    """(query + content_bias) . key + (query + position_bias) . rows + bias, over sqrt(d_head).

    Attributes:
        content_bias_HK, position_bias_HK: added to every query; None for nothing.
        table: rows and bias of each distance; None where scores know no distance.
    """

    content_bias_HK: Tensor | None = None
    position_bias_HK: Tensor | None = None
    table: Distances | None = None

    def content_query(self, query_HBTK: Tensor) -> Tensor:
        return _plus(query_HBTK, self.content_bias_HK)

    def position_query(self, query_HBTK: Tensor) -> Tensor:
        return _plus(query_HBTK, self.position_bias_HK)

    def position_HBTS(self, query_HBTK: Tensor) -> Tensor | None:
        return None if self.table is None else self.table.position(self.position_query(query_HBTK))


def _plus(query_HBTK: Tensor, bias_HK: Tensor | None) -> Tensor:
    if bias_HK is None:
        return query_HBTK
    return query_HBTK + bias_HK[:, None, None].to(query_HBTK.dtype)


class Scores(NamedTuple):
    """How queries score keys: (query . key + position) / sqrt(d_head) + bias.

    Left in parts so that attention can compute them in one buffer, or inside a fused kernel.

    Attributes:
        position_HBTS: computed for these queries alone: attention may write into it.
        scaled: whether `position_HBTS` is over sqrt(d_head) already.
    """

    query_HBTK: Tensor
    position_HBTS: Tensor | None = None
    bias_HBTS: Tensor | None = None
    scaled: bool = False


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

    def recall(
        self, kept: dict[Any, Any], keys: int, clamp_len: int | None, like: Tensor, queries: int
    ) -> Any:
        """`prepare` in evaluation, where weights stay as they are from pass to pass.

        Args:
            kept: empty at first; what is put there is there again in the next pass.
            queries: how many there are, of all streams together.
        """
        return self.prepare(keys, clamp_len, like)

    def terms(self, layer: int, shared: Any) -> Terms:
        """How the queries of `layer` score its keys; by content alone unless overridden."""
        return Terms()

    def score(self, layer: int, query_HBTK: Tensor, shared: Any) -> Scores:
        """What `terms` says; overridden by encodings whose scores are no such products."""
        terms = self.terms(layer, shared)
        return Scores(
            terms.content_query(query_HBTK),
            terms.position_HBTS(query_HBTK),
            scaled=isinstance(shared, ScaledTables),
        )

    @property
    def has_terms(self) -> bool:
        """Whether `terms` says all there is, so that attention may be fused."""
        return type(self).score is Encoding.score

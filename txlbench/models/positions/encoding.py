"""The face of a position encoding: what it adds, how it turns queries and keys, how they score.

Scores are sums of products that every kernel computes piece by piece (`ScoreTerms`). An encoding
whose scores are no such sum gives them whole (`Encoding.scores`), and attention is not fused then.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.interface import autocast_dtype
from txlbench.models.positions.tables import DistanceScores, DistanceTable, tables_from_cache


class ScoreTerms(NamedTuple):
    """(query + content_bias) . key / sqrt(d_head) + the table's scores of query + position_bias.

    With `decay`, decay_i - decay_j is added for the query at key i.

    Attributes:
        content_bias_HK, position_bias_HK: added to every query; None for nothing.
        table: scores queries by distance; None where scores know no distance.
        decay_HBS: sums of log gates (`Encoding.log_gates`) up to each key, in float32 at least.
    """

    content_bias_HK: Tensor | None = None
    position_bias_HK: Tensor | None = None
    table: DistanceScores | None = None
    decay_HBS: Tensor | None = None

    def content_query(self, query_HBTK: Tensor) -> Tensor:
        """The queries as they meet keys."""
        return _plus(query_HBTK, self.content_bias_HK)

    def position_query(self, query_HBTK: Tensor) -> Tensor:
        """The queries as they meet distances."""
        return _plus(query_HBTK, self.position_bias_HK)

    def position_scores(self, query_HBTK: Tensor) -> Tensor | None:
        """The table's scores [H, B or 1, T, S]; None without a table."""
        return None if self.table is None else self.table.position(self.position_query(query_HBTK))

    def decay_scores(self, queries: int) -> Tensor | None:
        """What gates add, [H, B, T, S]; None without them. Entries in the future mean nothing."""
        if self.decay_HBS is None:
            return None
        return self.decay_HBS[..., -queries:, None] - self.decay_HBS[..., None, :]

    def scores(self, query_HBTK: Tensor, key_HBSK: Tensor) -> Tensor:
        """The sum without gates, in one buffer where each stream has its own: [H, B, T, S]."""
        query = (self.content_query(query_HBTK) * query_HBTK.shape[-1] ** -0.5).flatten(0, 1)
        key, shape = key_HBSK.flatten(0, 1).transpose(1, 2), (*query_HBTK.shape[:3], -1)
        position = self.position_scores(query_HBTK)
        if position is None:
            return torch.bmm(query, key).view(shape)
        if position.shape[1] != shape[1]:
            return torch.bmm(query, key).view(shape) + position
        return torch.baddbmm(position.flatten(0, 1), query, key).view(shape)

    def apart(self, query_HBTK: Tensor, key_HBSK: Tensor) -> dict[str, Tensor]:
        """The terms of the sum as section 3.3 of the paper letters them, those that there are.

        a: query and key; b: query and distance; c: bias and key; d: bias and distance, with the
        table's own bias. [H, B or 1, T, S] each, over sqrt(d_head).
        """
        heads, _, queries, size = query_HBTK.shape
        none = query_HBTK.new_zeros(heads, 1, queries, size)
        found = {"a": ScoreTerms().scores(query_HBTK, key_HBSK)}
        if self.content_bias_HK is not None:
            bias_HBTK = self.content_query(none).expand_as(query_HBTK)
            found["c"] = ScoreTerms().scores(bias_HBTK, key_HBSK)
        table = self.table
        if isinstance(table, DistanceTable):
            if table.rows_HKS is not None:
                found["b"] = replace(table, bias_HS=None).position(query_HBTK)
            if self.position_bias_HK is not None or table.bias_HS is not None:
                found["d"] = table.position(self.position_query(none))
        return dict(sorted(found.items()))


def _plus(query_HBTK: Tensor, bias_HK: Tensor | None) -> Tensor:
    if bias_HK is None:
        return query_HBTK
    return query_HBTK + bias_HK[:, None, None].to(query_HBTK.dtype)


class Encoding(nn.Module):
    """Positions enter through hooks that default to nothing: `none`, no encoding (NoPE), as it is.

    Without any, a decoder still tells order by the causal mask, as the first of T tokens sees one
    key and the last T (Haviv et al. 2022, Kazemnejad et al. 2023). Where every query sees the same
    number of keys, nothing is left of it.

    A subclass is built from the model's configuration alone, owns its parameters for all layers,
    and overrides the hooks it needs. Its entry in `config.catalogue` says what is known before.

    Attributes:
        has_terms: `biases` and `distance_table` say all there is of the scores, so that attention
            may be fused; an encoding that overrides `scores` sets it to False.
    """

    has_terms: ClassVar[bool] = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def initialise(self) -> None:
        """Draws weights that start otherwise than as N(0, init_std); see `models.factory`."""

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        """The embedded tokens with what the encoding adds to them, before dropout."""
        return hidden_BTD

    def add_to_layer(self, layer: int, hidden_BTD: Tensor) -> Tensor:
        """The input of `layer` with what the encoding adds to it; memory keeps the sum."""
        return hidden_BTD

    def place(self, layer: int, states_HBLK: Tensor, first: int, span: AttentionSpan) -> Tensor:
        """Queries or keys at the positions first, first + 1, ... as they meet.

        Positions may be counted from anywhere, the same for queries and keys, so that their scores
        must depend on the difference alone. In training all keys are counted from 0 at every
        segment; a cache places each key once and keeps it. A rotation (RoPE) needs no more than
        this hook.
        """
        return states_HBLK

    def log_gates(self, layer: int, input_BLD: Tensor) -> Tensor | None:
        """What each token lets through of those before it, as a logarithm: [H, B, L].

        A score gets the sum over the tokens after its key, up to its query. None for nothing.

        Args:
            input_BLD: what keys are computed from.
        """
        return None

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Any:
        """What all layers share in one pass: `shared` of `distance_table` and `scores`.

        Args:
            keys: S, the number of keys.
            clamp_len: distances beyond it count as clamp_len.
            like: a tensor with the device and dtype of the parameters.
        """
        return None

    def biases(self, layer: int) -> tuple[Tensor | None, Tensor | None]:
        """The biases added to the queries of `layer` for keys and for distances: [H, K] each."""
        return None, None

    def distance_table(self, layer: int, shared: Any) -> DistanceTable | None:
        """How `layer` scores distances; None where scores know no distance."""
        return None

    def scores(self, layer: int, query_HBTK: Tensor, key_HBSK: Tensor, shared: Any) -> Tensor:
        """How placed queries of `layer` score placed keys, over sqrt(d_head): [H, B, T, S]."""
        return self.terms(layer, self.distance_table(layer, shared)).scores(query_HBTK, key_HBSK)

    def score_terms(
        self, layer: int, query_HBTK: Tensor, key_HBSK: Tensor, shared: Any
    ) -> dict[str, Tensor]:
        """The terms that `scores` is the sum of, [H, B or 1, T, S] each, by the paper's letters.

        See `ScoreTerms.apart`; e is all that an encoding which gives its scores whole adds to the
        product of queries and keys.
        """
        if self.has_terms:
            terms = self.terms(layer, self.distance_table(layer, shared))
            return terms.apart(query_HBTK, key_HBSK)
        content = ScoreTerms().scores(query_HBTK, key_HBSK)
        return {"a": content, "e": self.scores(layer, query_HBTK, key_HBSK, shared) - content}

    def terms(self, layer: int, table: DistanceScores | None) -> ScoreTerms:
        """The scores of `layer` in terms, by its own table or a kept one."""
        return ScoreTerms(*self.biases(layer), table)

    def cached_tables(
        self,
        kept: dict[Hashable, Any],
        keys: int,
        clamp_len: int | None,
        like: Tensor,
        queries: int,
    ) -> Sequence[DistanceScores | None]:
        """The tables of all layers in evaluation, where weights stay as they are.

        Args:
            kept: empty at first; what is put there is there again in the next pass.
            queries: how many there are, of all streams together.
        """
        dtype = autocast_dtype(like)

        def tables(reach: int) -> Iterable[DistanceTable | None]:
            shared = self.prepare(reach, clamp_len, like)
            for layer in range(self.config.n_layer):
                table = self.distance_table(layer, shared)
                yield None if table is None else table.prescaled(dtype)

        return tables_from_cache(kept, dtype, keys, tables)

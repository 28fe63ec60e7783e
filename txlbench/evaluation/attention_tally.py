"""Statistics of attention, summed layer by layer while a text is read.

Nothing of the size of the text is kept: sums by relative distance, and means over blocks of
consecutive tokens, from which intervals come. Further letters of shapes:

    D distances 0 to reach - 1     N queries that count     Z blocks
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from txlbench.models.interface import ScoreObserver
from txlbench.models.mask import distance

BLOCKS = 20
"""Blocks of consecutive tokens, as far apart as the text allows, whose means give intervals."""


TINY = 1e-30


def by_distance(values_HBTS: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Values by relative distance [H, B, T, D], and which of them there are [T, D].

    Query i meets distance d at key S - T + i - d (`models.mask`); where there is none it is 0.
    """
    queries, keys = values_HBTS.shape[-2:]
    query = torch.arange(queries, device=values_HBTS.device)[:, None]
    apart = torch.arange(reach, device=values_HBTS.device)[None]
    key_TD = distance(query, apart, queries, keys)  # the key so far back: distances are symmetric
    there_TD = key_TD >= 0
    index = key_TD.clamp(min=0).expand(*values_HBTS.shape[:2], queries, reach)
    return values_HBTS.gather(-1, index).masked_fill(~there_TD, 0), there_TD


@dataclass
class TermSums:
    """Sums of one term of one layer.

    Attributes:
        profile_HD: of the softmax of the term alone.
        variance_H: of the variances of each query's scores over the keys that it sees.
        scores_HD, squares_HD: of scores and their squares, less what shifts all of a query's.
    """

    profile_HD: Tensor
    variance_H: Tensor
    scores_HD: Tensor
    squares_HD: Tensor

    def add(self, scores_NHD: Tensor, visible_ND: Tensor, common: int) -> None:
        """Adds the scores of some queries.

        The mean over the nearest `common` keys, which every query has, is taken off: a softmax
        does not see it.
        """
        hidden_N1D = ~visible_ND[:, None]
        scores_NHD = scores_NHD.double()
        scores_NHD = scores_NHD - scores_NHD[..., :common].mean(-1, keepdim=True)
        alone_NHD = scores_NHD.masked_fill(hidden_N1D, float("-inf")).softmax(-1)
        scores_NHD = scores_NHD.masked_fill(hidden_N1D, 0)
        seen_N1 = visible_ND.sum(-1, keepdim=True)
        mean_NH, square_NH = scores_NHD.sum(-1) / seen_N1, scores_NHD.square().sum(-1) / seen_N1
        self.profile_HD += alone_NHD.sum(0)
        self.variance_H += (square_NH - mean_NH.square()).clamp(min=0).sum(0)
        self.scores_HD += scores_NHD.sum(0)
        self.squares_HD += scores_NHD.square().sum(0)

    def scales(self, seen_D: Tensor) -> Tensor:
        """Standard deviation of a query's scores over its keys, the root of mean squares: [H]."""
        queries = seen_D.max()
        return (self.variance_H / queries).sqrt()

    def spreads(self, seen_D: Tensor) -> Tensor:
        """Standard deviation over queries of the scores at one distance, likewise: [H]."""
        mean_HD = self.scores_HD / seen_D.clamp(min=1)
        within_HD = (self.squares_HD - self.scores_HD * mean_HD).clamp(min=0)
        return (within_HD.sum(-1) / seen_D.sum()).sqrt()


@dataclass
class LayerSums:
    """Sums of one layer, in float64.

    Attributes:
        profile_HD: of attention.
        first_H: of attention on the first key, or those that stand apart.
        seen_D: of queries that saw a key at each distance.
        distance_ZH, entropy_ZH: of each query's mean distance and entropy (nats), by block.
        terms: by letter.
    """

    profile_HD: Tensor
    first_H: Tensor
    seen_D: Tensor
    distance_ZH: Tensor
    entropy_ZH: Tensor
    terms: dict[str, TermSums] = field(default_factory=dict)

    @classmethod
    def empty(cls, heads: int, reach: int, device: torch.device) -> "LayerSums":
        zeros = torch.zeros(heads, reach, dtype=torch.float64, device=device)
        blocks = zeros.new_zeros(BLOCKS, heads)
        return cls(zeros, zeros.new_zeros(heads), zeros.new_zeros(reach), blocks, blocks.clone())


@dataclass(frozen=True)
class Counted:
    """Which queries of a segment count.

    Attributes:
        chosen_BT: whether each does.
        position_BT: the place in the split of the token that each reads.
    """

    chosen_BT: Tensor
    position_BT: Tensor


class AttentionTally(ScoreObserver):
    """Adds up attention and the terms of its scores, as an observer of passes over segments.

    Attributes:
        reach: number of distances; a query sees keys at 0 to reach - 1.
        common: those that every query which counts sees.
        shown: places in the split of the queries whose attention is kept as it is.
        apart: first keys of a window that have no distance: what a model puts before the text, or
            the one on which attention rests that is needed nowhere (an attention sink).
        layers: the sums by layer.
        counts_Z: queries that count, by block.
        rows: by layer and place of the query, its attention by distance [H, D].
        row_error: the most by which a row's sum over all keys differs from 1.
        leak: the most attention of a query that lies outside of what it may see.
    """

    def __init__(
        self,
        reach: int,
        common: int,
        predictions: int,
        device: torch.device,
        shown: range = range(0),
        apart: int = 0,
    ) -> None:
        self.reach, self.common = reach, common
        self.shown, self.apart = shown, apart
        self.layers: dict[int, LayerSums] = {}
        self.counts_Z = torch.zeros(BLOCKS, dtype=torch.float64, device=device)
        self.rows: dict[tuple[int, int], Tensor] = {}
        self.row_error = self.leak = 0.0
        self._predictions, self._device = predictions, device
        self._counted: Counted | None = None
        self._terms: Mapping[str, Tensor] = {}

    def expect(self, counted: Counted) -> None:
        """Says which queries of the next pass count."""
        self._counted, self._terms = counted, {}
        self.counts_Z += torch.bincount(self._blocks(counted), minlength=BLOCKS)

    def see_terms(self, layer: int, terms_HBTS: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See `ScoreObserver`."""
        self._terms = terms_HBTS

    def __call__(self, layer: int, hidden_BTD: Tensor, attention_HBTS: Tensor | None) -> None:  # noqa: ARG002
        """Adds the attention of a layer; see `Observer`."""
        if attention_HBTS is not None:
            self.add(layer, attention_HBTS)

    def add(self, layer: int, attention_HBTS: Tensor) -> None:
        """Adds the attention of a layer to all queries that count, and the terms seen before."""
        counted = self._counted
        assert counted is not None, "expect() comes first"
        if layer not in self.layers:
            heads = len(attention_HBTS)
            self.layers[layer] = LayerSums.empty(heads, self.reach, self._device)
        sums = self.layers[layer]
        whole_NHS = _chosen(attention_HBTS, counted.chosen_BT).double()
        if not len(whole_NHS):
            return
        attention_HBTD, there_TD = by_distance(attention_HBTS[..., self.apart :], self.reach)
        rows_NHD = _chosen(attention_HBTD, counted.chosen_BT).double()
        text_NH, apart_NH = rows_NHD.sum(-1), whole_NHS[..., : self.apart].sum(-1)
        off_NH = whole_NHS.sum(-1) - 1
        self.row_error = max(self.row_error, float(off_NH.abs().max()))
        self.leak = max(self.leak, float((off_NH + 1 - apart_NH - text_NH).max()))
        sums.profile_HD += rows_NHD.sum(0)
        sums.first_H += whole_NHS[..., : max(1, self.apart)].sum((0, 2))
        back_D = torch.arange(self.reach, dtype=torch.float64, device=self._device)
        distance_NH = (rows_NHD @ back_D) / text_NH.clamp(min=TINY)
        block_N = self._blocks(counted)
        sums.distance_ZH.index_add_(0, block_N, distance_NH)
        sums.entropy_ZH.index_add_(0, block_N, torch.special.entr(whole_NHS).sum(-1))
        visible_ND = there_TD.expand(*counted.chosen_BT.shape, self.reach)[counted.chosen_BT]
        sums.seen_D += visible_ND.sum(0)
        self._add_terms(sums, counted, visible_ND)
        if self.shown:
            self._keep_rows(layer, counted, rows_NHD)

    def _add_terms(self, sums: LayerSums, counted: Counted, visible_ND: Tensor) -> None:
        for letter, scores_HBTS in self._terms.items():
            shape = (len(scores_HBTS), *counted.chosen_BT.shape, scores_HBTS.shape[-1])
            scores_HBTD, _ = by_distance(scores_HBTS.expand(shape), self.reach)
            if letter not in sums.terms:
                zeros, none = torch.zeros_like(sums.profile_HD), torch.zeros_like(sums.first_H)
                sums.terms[letter] = TermSums(zeros, none, zeros.clone(), zeros.clone())
            sums.terms[letter].add(_chosen(scores_HBTD, counted.chosen_BT), visible_ND, self.common)

    def _keep_rows(self, layer: int, counted: Counted, rows_NHD: Tensor) -> None:
        positions = counted.position_BT[counted.chosen_BT].tolist()
        for row_HD, position in zip(rows_NHD, positions, strict=True):
            if position in self.shown:
                self.rows[layer, position] = row_HD.float().cpu()

    def _blocks(self, counted: Counted) -> Tensor:
        """The block of each query that counts: [N]."""
        return counted.position_BT[counted.chosen_BT] * BLOCKS // self._predictions


def _chosen(values_HBTX: Tensor, chosen_BT: Tensor) -> Tensor:
    """The values of the queries that count: [N, H, X]."""
    return values_HBTX.permute(1, 2, 0, 3)[chosen_BT]

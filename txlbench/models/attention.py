"""Multi-head attention over memory and segment: the plain path, and the choice of a kernel."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.dropout import Dropout
from txlbench.models.interface import Observer, ScoreObserver, sees_attention
from txlbench.models.kernels.cpu import AttentionDropout, fused_attention, project
from txlbench.models.kernels.cuda import SMALLEST_HEAD, PositionDropout, flexible_attention
from txlbench.models.mask import Mask
from txlbench.models.positions.encoding import Encoding, ScoreTerms
from txlbench.models.positions.tables import DistanceTable
from txlbench.records.schema import AttentionPath

Kernel = Callable[[Tensor, Tensor, ScoreTerms, Mask], Tensor]
"""Queries [B, T, H, K] and context [B, S, 2, H, K] -> mixed values [B, T, H, K]."""


@dataclass(frozen=True)
class Scoring:
    """How the queries of one layer score keys in one pass.

    Attributes:
        span: how far the model attends.
        shared: what the encoding prepared for all layers.
        observer: of the pass, which may want the probabilities themselves.
        decay_HBS: sums of log gates up to each key; None where keys are not forgotten.
    """

    encoding: Encoding
    layer: int
    span: AttentionSpan
    shared: Any
    mask: Mask
    observer: Observer | None
    decay_HBS: Tensor | None = None

    def over(self, context_BSD: Tensor) -> "Scoring":
        """The same with the gates of the keys' own inputs, where the encoding has gates."""
        log_gates_HBS = self.encoding.log_gates(self.layer, context_BSD)
        if log_gates_HBS is None:
            return self
        return replace(self, decay_HBS=log_gates_HBS.cumsum(-1))

    @property
    def watched(self) -> bool:
        """Whether the probabilities themselves are wanted."""
        return sees_attention(self.observer)

    @property
    def fusable(self) -> bool:
        """Whether kernels know the scores, and nobody wants the probabilities."""
        return self.encoding.has_terms and not self.watched

    @property
    def terms(self) -> ScoreTerms:
        table = self.encoding.distance_table(self.layer, self.shared)
        if not isinstance(table, DistanceTable | None):
            raise TypeError(f"distance_table() gave {table!r:.80}, which is no DistanceTable")
        return self.encoding.terms(self.layer, table)._replace(decay_HBS=self.decay_HBS)

    def scores(self, query_HBTK: Tensor, key_HBSK: Tensor) -> Tensor:
        """The whole scores [H, B, T, S]; their terms are shown to whom they concern."""
        query_HBTK, key_HBSK = self.placed(query_HBTK, key_HBSK)
        scores_HBTS = self.encoding.scores(self.layer, query_HBTK, key_HBSK, self.shared)
        decay_HBTS = ScoreTerms(decay_HBS=self.decay_HBS).decay_scores(query_HBTK.shape[2])
        if isinstance(self.observer, ScoreObserver):
            terms = self.encoding.score_terms(self.layer, query_HBTK, key_HBSK, self.shared)
            forgotten = {} if decay_HBTS is None else {"f": decay_HBTS}
            self.observer.see_terms(self.layer, terms | forgotten)
        return scores_HBTS if decay_HBTS is None else scores_HBTS + decay_HBTS

    def placed(self, query_HBTK: Tensor, key_HBSK: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys at their positions, the oldest key's being 0."""
        first = self.mask.keys - self.mask.queries
        query = self.encoding.place(self.layer, query_HBTK, first, self.span)
        return query, self.encoding.place(self.layer, key_HBSK, 0, self.span)

    def placed_context(self, query_BTHK: Tensor, context_BS2HK: Tensor) -> tuple[Tensor, Tensor]:
        """The same as the kernels take them; most encodings change neither."""
        given_HBTK = query_BTHK.permute(2, 0, 1, 3)
        key_HBSK, value_HBSK = context_BS2HK.permute(2, 3, 0, 1, 4)
        query_HBTK, placed_HBSK = self.placed(given_HBTK, key_HBSK)
        if query_HBTK is given_HBTK and placed_HBSK is key_HBSK:
            return query_BTHK, context_BS2HK
        context_BS2HK = torch.stack([placed_HBSK, value_HBSK]).permute(2, 3, 0, 1, 4)
        return query_HBTK.permute(1, 2, 0, 3).contiguous(), context_BS2HK


class Attention(nn.Module):
    """Queries from the segment, keys and values from memory and segment.

    Heads come first in every product ([H, B, ...]), so that content scores are one batched
    product over heads and streams and position scores one over heads, both without a copy.

    Attributes:
        fuses: whether a CUDA device may take its kernel; `training.self_test` finds out.
        acts_on: the type of device by whose rules a path is chosen; None for that of the tensors.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.size = config.n_head, config.head_size
        self.memory_learns = config.pre_lnorm  # the norm's weights, by what it makes of memory
        inner = self.heads * self.size
        self.q_net = nn.Linear(config.d_model, inner, bias=False)
        self.kv_net = nn.Linear(config.d_model, 2 * inner, bias=False)
        self.o_net = nn.Linear(inner, config.d_model, bias=False)
        self.dropatt = Dropout(config.dropatt, batch_dim=1)
        self.fuses = True
        self.acts_on: str | None = None

    def forward(
        self, input_BTD: Tensor, context_BSD: Tensor, scoring: Scoring
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the mixed values [B, T, D] and, if watched, the probabilities [H, B, T, S]."""
        scoring = scoring.over(context_BSD)
        device = self.acts_on or input_BTD.device.type
        path, dropout = (
            self.path(device, scoring.fusable),
            self._position_dropout(device, context_BSD),
        )
        if path != "plain":
            flexible = partial(flexible_attention, dropout=dropout)
            kernel = self._in_tiles if path == "tiles" else flexible
            return self._fused(kernel, input_BTD, context_BSD, scoring), None
        query_HBTK = self.queries(input_BTD)
        key_HBSK, value_HBSK = map(self._split, self.kv_net(context_BSD).chunk(2, dim=-1))
        attend = partial(self._plain, query_HBTK, key_HBSK, value_HBSK, scoring, dropout)
        if not self._recomputes(device, scoring):
            mixed_HBTK, attention_HBTS = attend()
            return self.joined(mixed_HBTK), attention_HBTS
        mixed_HBTK, _ = checkpoint(attend, use_reentrant=False)
        return self.joined(mixed_HBTK), None

    def _plain(
        self,
        query_HBTK: Tensor,
        key_HBSK: Tensor,
        value_HBSK: Tensor,
        scoring: Scoring,
        dropout: PositionDropout | None,
    ) -> tuple[Tensor, Tensor]:
        """The mixed values [H, B, T, K] and the probabilities [H, B, T, S]."""
        scores_HBTS = scoring.scores(query_HBTK, key_HBSK)
        hidden = scoring.mask.alone()
        if hidden is not None:
            scores_HBTS = scores_HBTS + hidden.to(scores_HBTS.dtype)
        attention_HBTS = torch.softmax(scores_HBTS, dim=-1)
        drop = self.dropatt if dropout is None else dropout.onto
        attention_HBTS = drop(attention_HBTS)
        mixed_HBTK = torch.bmm(
            attention_HBTS.flatten(0, 1).to(value_HBSK.dtype), value_HBSK.flatten(0, 1)
        )
        return mixed_HBTK.view(query_HBTK.shape), attention_HBTS

    def _recomputes(self, device: str, scoring: Scoring) -> bool:
        """Whether the plain path is computed again for the gradient, so as to keep no [H, B, T, S].

        So on a device, where dropout's mask of positions is the same in the second pass.
        """
        plain = device == "cpu" or scoring.watched or torch.compiler.is_compiling()
        return self.training and torch.is_grad_enabled() and not plain

    def path(self, device: str, fusable: bool) -> AttentionPath:
        """Chooses between a kernel, which keeps no probabilities, and the plain path.

        Compiled for a CPU the plain path is faster than one that is broken into parts. A CUDA
        device's kernel serves training, before which it is tested; evaluation has a KV cache.

        Args:
            device: the type of device.
            fusable: `Scoring.fusable`.
        """
        if not fusable:
            return "plain"
        if device == "cpu":
            return "plain" if torch.compiler.is_compiling() else "tiles"
        fuses = self.fuses and self.training and self.size >= SMALLEST_HEAD
        return "flex" if fuses else "plain"

    def _position_dropout(self, device: str, context_BSD: Tensor) -> PositionDropout | None:
        """The mask of attention dropout on a device; a CPU draws its own, as it always has."""
        if device == "cpu" or not self.training or self.dropatt.rate == 0:
            return None
        batch, keys, _ = context_BSD.shape
        rate = self.dropatt.rate
        return PositionDropout.draw(batch, self.heads, keys, rate, context_BSD.device)

    def _fused(
        self, kernel: Kernel, input_BTD: Tensor, context_BSD: Tensor, scoring: Scoring
    ) -> Tensor:
        """The mixed values [B, T, D], without the probabilities."""
        query_BTHK = self.q_net(input_BTD).unflatten(-1, (self.heads, self.size))
        if self.memory_learns or torch.compiler.is_compiling():
            projected_BSI = self.kv_net(context_BSD)
        else:
            projected_BSI = project(input_BTD, context_BSD.detach(), self.kv_net.weight)
        context_BS2HK = projected_BSI.unflatten(-1, (2, self.heads, self.size))
        query_BTHK, context_BS2HK = scoring.placed_context(query_BTHK, context_BS2HK)
        mixed_BTHK = kernel(query_BTHK, context_BS2HK, scoring.terms, scoring.mask)
        mixed: Tensor = self.o_net(mixed_BTHK.flatten(2))
        return mixed

    def _in_tiles(
        self, query_BTHK: Tensor, context_BS2HK: Tensor, terms: ScoreTerms, mask: Mask
    ) -> Tensor:
        dropout = None
        if self.training and self.dropatt.rate > 0:
            shape = (self.heads, len(query_BTHK), mask.queries, mask.keys)
            dropout = AttentionDropout.draw(shape, self.dropatt.rate)
        return fused_attention(query_BTHK, context_BS2HK, terms, mask, dropout)

    def queries(self, input_BTD: Tensor) -> Tensor:
        """The queries [H, B, T, K], contiguous."""
        return self._split(self.q_net(input_BTD))

    def keys_values(self, input_BTD: Tensor) -> Tensor:
        """Keys and values in one, as a view: [2, H, B, T, K]."""
        projected = self.kv_net(input_BTD).unflatten(-1, (2, self.heads, self.size))
        return projected.permute(2, 3, 0, 1, 4)

    def joined(self, mixed_HBTK: Tensor) -> Tensor:
        """The output projection of all heads: [B, T, D]."""
        mixed: Tensor = self.o_net(mixed_HBTK.permute(1, 2, 0, 3).flatten(2))
        return mixed

    def _split(self, projected: Tensor) -> Tensor:
        """Splits the heads: [B, L, H * K] -> [H, B, L, K]."""
        return projected.unflatten(-1, (self.heads, self.size)).permute(2, 0, 1, 3).contiguous()

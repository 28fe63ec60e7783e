"""The output layer: a softmax over the vocabulary, in clusters where there are cutoffs.

Cross-entropy over many words goes without their logits, a part of the vocabulary at a time. With
logits A = h W^T + b of N hidden states, the loss of n is log sum_v exp A_nv - A_n,target. The
sum grows from part to part; the gradient G_nv = g_n (exp(A_nv - lse_n) - [v is n's target]) is
computed again part by part: dW = G^T h, db = sum of G over n, dh = G W. So one product in
three is done twice, and no tensor [N, V] exists. (torch.utils.checkpoint over parts of the rows
takes as little memory, and 1.4 to 1.6 times as long with 33,000 words or more: it adds up a
gradient of all weights for each part.)
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear, log_softmax

from txlbench.config.model import ModelConfig, softmax_projections
from txlbench.models.embedding import Embedding, places_by_cluster, sent
from txlbench.models.interface import autocast_dtype

LOGITS = 2**22
"""Logits held at once: 16 MB in float32. Fewer are computed together and kept."""


def word_losses(hidden_NE: Tensor, weight_VE: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    """Cross-entropy losses [N] in nats, in float32 at least."""
    if len(hidden_NE) * len(weight_VE) <= LOGITS:
        logits = at_least_float32(linear(hidden_NE, weight_VE, bias_V))
        return cross_entropy(logits, targets_N, reduction="none")
    dtype = autocast_dtype(weight_VE)
    parts = (part.to(dtype) for part in (hidden_NE, weight_VE, bias_V))
    losses: Tensor = ChunkedLoss.apply(*parts, targets_N)  # type: ignore[no-untyped-call]
    return losses


class ChunkedLoss(torch.autograd.Function):
    """The loss and its gradient, part by part; called through `word_losses`."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NE: Tensor, weight_VE: Tensor, bias_V: Tensor, targets_N: Tensor
    ) -> Tensor:
        total_N = at_least_float32(hidden_NE.new_full((len(hidden_NE),), float("-inf")))
        chosen_N = torch.zeros_like(total_N)
        for words in _parts(len(hidden_NE), len(weight_VE)):
            logits = _logits(hidden_NE, weight_VE, bias_V, words)
            total_N = torch.logaddexp(total_N, logits.logsumexp(1))
            column_N1, inside_N1 = _targets_within(targets_N, words)
            chosen_N += logits.gather(1, column_N1).where(inside_N1, 0.0)[:, 0]
        ctx.save_for_backward(hidden_NE, weight_VE, bias_V, targets_N, total_N)
        return total_N - chosen_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        hidden_NE, weight_VE, bias_V, targets_N, total_N = ctx.saved_tensors
        of_hidden_NE = at_least_float32(torch.zeros_like(hidden_NE))
        of_weight_VE, of_bias_V = torch.empty_like(weight_VE), torch.empty_like(bias_V)
        for words in _parts(len(hidden_NE), len(weight_VE)):
            logits = _logits(hidden_NE, weight_VE, bias_V, words)
            of_logits = logits.sub_(total_N[:, None]).exp_()
            column_N1, inside_N1 = _targets_within(targets_N, words)
            of_logits.scatter_add_(1, column_N1, -inside_N1.to(of_logits.dtype))
            of_logits = of_logits.mul_(grad_N[:, None]).to(hidden_NE.dtype)
            of_weight_VE[words] = of_logits.T @ hidden_NE
            of_bias_V[words] = of_logits.sum(0)
            of_hidden_NE += of_logits @ weight_VE[words]
        return of_hidden_NE.to(hidden_NE.dtype), of_weight_VE, of_bias_V, None


def _parts(hidden: int, vocabulary: int) -> Iterator[slice]:
    """Cuts the vocabulary into parts whose logits are held at once."""
    size = max(1, LOGITS // hidden)
    return (slice(first, min(vocabulary, first + size)) for first in range(0, vocabulary, size))


def _logits(hidden_NE: Tensor, weight_VE: Tensor, bias_V: Tensor, words: slice) -> Tensor:
    return at_least_float32(linear(hidden_NE, weight_VE[words], bias_V[words]))


def _targets_within(targets_N: Tensor, words: slice) -> tuple[Tensor, Tensor]:
    """Each target's column in a part of the vocabulary, and whether it lies there: [N, 1].

    All rows alike: to pick those that lie there would make a device wait for the host.
    """
    column_N = targets_N - words.start
    inside_N = (column_N >= 0) & (targets_N < words.stop)
    return (column_N * inside_N)[:, None], inside_N[:, None]


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in a format whose log-softmax keeps small differences."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities with weights tied to the embedding (Grave et al. 2016a; official code).

    The head holds the first cluster's tokens and one entry for each tail cluster; a token of
    tail k has log p(tail k) + log p(token | tail k). Without cutoffs it is a plain softmax.
    Losses come in token order, unlike the official default (erratum E12).
    """

    def __init__(self, config: ModelConfig, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.clusters = embedding.clusters
        tails = len(self.clusters) - 1
        self.bias = nn.Parameter(torch.empty(self.clusters[-1].end))
        self.cluster_weight = nn.Parameter(torch.empty(tails, config.embed_size))
        self.cluster_bias = nn.Parameter(torch.empty(tails))
        self.owns_projection = softmax_projections(config)
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(config.d_model, cluster.width))
            for cluster, own in zip(self.clusters, self.owns_projection, strict=True)
            if own
        )

    def losses(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """Losses [N] in nats of N targets, which may lie on the host; see `Embedding`."""
        device, (head, *tails) = hidden_ND.device, self._words()
        if not tails:
            return word_losses(self._project(0, hidden_ND), *head, sent(targets_N, device))
        places = places_by_cluster(targets_N, self.clusters, device)
        columns_N = targets_N = sent(targets_N, device)
        for index, where in enumerate(places[1:]):
            columns_N = columns_N.index_fill(0, where, self.clusters[0].size + index)
        losses = word_losses(self._project(0, hidden_ND), *head, columns_N)
        for index, tail in enumerate(tails, 1):
            where = places[index]
            hidden, within = hidden_ND[where], targets_N[where] - self.clusters[index].first
            inner = word_losses(self._project(index, hidden), *tail, within)
            losses = losses.index_add(0, where, inner)
        return losses

    def log_probs(self, hidden_ND: Tensor) -> Tensor:
        """Log-probabilities [N, V] over the whole vocabulary; each row sums to one."""
        first, *tails = self._words()
        logits = at_least_float32(linear(self._project(0, hidden_ND), *first))
        head, entries = log_softmax(logits, dim=-1).split([self.clusters[0].size, len(tails)], 1)
        parts = [head]
        for index, tail in enumerate(tails, 1):
            logits = at_least_float32(linear(self._project(index, hidden_ND), *tail))
            parts.append(entries[:, index - 1 : index] + log_softmax(logits, dim=-1))
        return torch.cat(parts, dim=1)

    def _words(self) -> list[tuple[Tensor, Tensor]]:
        """Each cluster's weight, in its width, and bias; the head's with those of the tails."""
        weights = self.embedding.weights()
        if len(self.clusters) == 1:
            return [(weights[0], self.bias)]
        biases = self.bias.split([cluster.size for cluster in self.clusters])
        head = torch.cat([weights[0], self.cluster_weight])
        of_head = head, torch.cat([biases[0], self.cluster_bias])
        return [of_head, *zip(weights[1:], biases[1:], strict=True)]

    def _project(self, index: int, hidden_ND: Tensor) -> Tensor:
        """Projects hidden states from the model's width to the cluster's."""
        if self.owns_projection[index]:
            projection = self.projections[sum(self.owns_projection[:index])]
        elif len(self.embedding.projections):
            shared = self.embedding.projections
            projection = shared[index] if len(shared) > 1 else shared[0]
        else:
            return hidden_ND
        return hidden_ND @ projection

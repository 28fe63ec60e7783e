"""The output layer: a softmax over the vocabulary, in clusters where there are cutoffs."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax

from txlbench.config.clusters import softmax_projections
from txlbench.config.model import ModelConfig
from txlbench.models.chunked_loss import at_least_float32, word_losses
from txlbench.models.embedding import Embedding


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
        """Losses [N] in nats of N targets."""
        if len(self.clusters) == 1:
            return word_losses(*self._head(hidden_ND), targets_N)
        first = self.clusters[0]
        columns = targets_N.clone()
        for index, cluster in enumerate(self.clusters[1:]):
            inside = (targets_N >= cluster.first) & (targets_N < cluster.end)
            columns[inside] = first.size + index
        losses = word_losses(*self._head(hidden_ND), columns)
        for index, cluster in enumerate(self.clusters[1:], start=1):
            where = ((targets_N >= cluster.first) & (targets_N < cluster.end)).nonzero().squeeze(1)
            inner = word_losses(
                *self._tail(index, hidden_ND[where]), targets_N[where] - cluster.first
            )
            losses = losses.index_add(0, where, inner)
        return losses

    def log_probs(self, hidden_ND: Tensor) -> Tensor:
        """Log-probabilities [N, V] over the whole vocabulary; each row sums to one."""
        head = log_softmax(at_least_float32(linear(*self._head(hidden_ND))), dim=-1)
        size = self.clusters[0].size
        return torch.cat([head[:, :size], *self._tail_log_probs(head[:, size:], hidden_ND)], dim=1)

    def _tail_log_probs(self, entries: Tensor, hidden_ND: Tensor) -> Iterator[Tensor]:
        for index in range(1, len(self.clusters)):
            logits = at_least_float32(linear(*self._tail(index, hidden_ND)))
            yield entries[:, index - 1 : index] + log_softmax(logits, dim=-1)

    def _head(self, hidden_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states as wide as the head, its weight and its bias."""
        first = self.clusters[0]
        weight, bias = self.embedding.weights(first), self.bias[: first.end]
        if len(self.clusters) > 1:
            weight = torch.cat([weight, self.cluster_weight])
            bias = torch.cat([bias, self.cluster_bias])
        return self._project(0, hidden_ND), weight, bias

    def _tail(self, index: int, hidden_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states as wide as the cluster, its weight and its bias."""
        cluster = self.clusters[index]
        weight, bias = self.embedding.weights(cluster), self.bias[cluster.first : cluster.end]
        return self._project(index, hidden_ND), weight, bias

    def _project(self, index: int, hidden_ND: Tensor) -> Tensor:
        """From the model's width to the cluster's."""
        if self.owns_projection[index]:
            projection = self.projections[sum(self.owns_projection[:index])]
        elif len(self.embedding.projections):
            shared = self.embedding.projections
            projection = shared[index] if len(shared) > 1 else shared[0]
        else:
            return hidden_ND
        return hidden_ND @ projection

"""Token embeddings, adaptive where the vocabulary is cut into clusters (Baevski & Auli 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from txlbench.config.model import Cluster, ModelConfig, clusters_of
from txlbench.models.dropout import Dropout


def places_by_cluster(tokens_N: Tensor, clusters: list[Cluster]) -> tuple[Tensor, ...]:
    """The positions of each cluster's tokens, in order; a device waits for the host once."""
    index_N = torch.zeros_like(tokens_N)
    for cluster in clusters[1:]:
        index_N += tokens_N >= cluster.first
    counts = torch.stack([(index_N == each).sum() for each in range(len(clusters))])
    return index_N.argsort(stable=True).split(counts.tolist())


class Embedding(nn.Module):
    """One table, or with `div_val` above 1 one narrower table a cluster, then a projection.

    Scaled by sqrt(d_model) as in the official code. The softmax shares the tables, and the
    projections that `tie_projs` names.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.scale = config.d_model**0.5
        self.word_dropout = Dropout(config.dropoute, batch_dim=None)
        self.clusters: list[Cluster] = clusters_of(config, vocabulary_size)
        separate = config.div_val > 1
        tables = self.clusters if separate else [Cluster(0, vocabulary_size, config.embed_size)]
        self.tables = nn.ParameterList(
            nn.Parameter(torch.empty(table.size, table.width)) for table in tables
        )
        projected = separate or config.embed_size != config.d_model
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(config.d_model, table.width))
            for table in (tables if projected else [])
        )

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T] token ids -> [B, T, D]; `dropoute` drops words wherever they stand."""
        hidden_BTD = self._embed(tokens_BT) * self.scale
        if not self.training or self.word_dropout.rate == 0:
            return hidden_BTD
        kept_V = self.word_dropout(self.tables[0].new_ones(self.clusters[-1].end))
        return hidden_BTD * kept_V[tokens_BT][..., None]

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        if len(self.tables) > 1:
            return self.by_cluster(tokens_BT.flatten()).view(*tokens_BT.shape, -1)
        hidden = embedding(tokens_BT, self.tables[0])
        return linear(hidden, self.projections[0]) if len(self.projections) else hidden

    def by_cluster(self, tokens_N: Tensor) -> Tensor:
        """Embeds [N] tokens cluster by cluster: [N, d_model]; its shapes differ at every step."""
        places = places_by_cluster(tokens_N, self.clusters)
        parts = zip(places, self.clusters, self.tables, self.projections, strict=True)
        found = [
            linear(embedding(tokens_N[where] - cluster.first, table), projection)
            for where, cluster, table, projection in parts
        ]
        rows = found[0].new_zeros(len(tokens_N), self.projections[0].shape[0])
        for where, part in zip(places, found, strict=True):
            rows = rows.index_copy(0, where, part)
        return rows

    def weights(self, cluster: Cluster) -> Tensor:
        """The rows of a cluster's tokens: [size, width]."""
        if len(self.tables) == 1:
            return self.tables[0][cluster.first : cluster.end]
        return self.tables[self.clusters.index(cluster)]

"""Token embeddings, adaptive where the vocabulary is cut into clusters (Baevski & Auli 2018)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from txlbench.config.model import Cluster, ModelConfig, clusters_of
from txlbench.models.dropout import Dropout


def places_by_cluster(
    tokens_N: Tensor, clusters: list[Cluster], device: torch.device
) -> tuple[Tensor, ...]:
    """The positions of each cluster's tokens, in order, on `device`.

    How many there are decides shapes. Where tokens lie on the host that is known at once; on a
    device the host has to wait for all that it was given before.
    """
    index_N = torch.zeros_like(tokens_N)
    for cluster in clusters[1:]:
        index_N += tokens_N >= cluster.first
    counts = torch.stack([(index_N == each).sum() for each in range(len(clusters))])
    return sent(index_N.argsort(stable=True), device).split(counts.tolist())


def sent(ids: Tensor, device: torch.device) -> Tensor:
    """`ids` on `device`: from page-locked memory, so that neither side waits."""
    if ids.device.type == "cpu" and device.type == "cuda":
        ids = ids.pin_memory()
    return ids.to(device, non_blocking=True)


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
        """[B, T] token ids -> [B, T, D]; `dropoute` drops words wherever they stand.

        Ids may lie on the host (`counts_tokens`).
        """
        hidden_BTD = self._embed(tokens_BT) * self.scale
        if not self.training or self.word_dropout.rate == 0:
            return hidden_BTD
        kept_V = self.word_dropout(self.tables[0].new_ones(self.clusters[-1].end))
        return hidden_BTD * kept_V[sent(tokens_BT, kept_V.device)][..., None]

    @property
    def counts_tokens(self) -> bool:
        """Whether shapes depend on how many tokens each cluster has, here or in the softmax."""
        return len(self.clusters) > 1

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        if len(self.tables) > 1:
            return self.by_cluster(tokens_BT.flatten()).view(*tokens_BT.shape, -1)
        hidden = embedding(sent(tokens_BT, self.tables[0].device), self.tables[0])
        return linear(hidden, self.projections[0]) if len(self.projections) else hidden

    def by_cluster(self, tokens_N: Tensor) -> Tensor:
        """Embeds [N] tokens cluster by cluster: [N, d_model]; its shapes differ at every step."""
        device = self.tables[0].device
        places, tokens_N = (
            places_by_cluster(tokens_N, self.clusters, device),
            sent(tokens_N, device),
        )
        parts = zip(places, self.clusters, self.tables, self.projections, strict=True)
        found = [
            linear(embedding(tokens_N[where] - cluster.first, table), projection)
            for where, cluster, table, projection in parts
        ]
        rows = found[0].new_zeros(len(tokens_N), self.projections[0].shape[0])
        for where, part in zip(places, found, strict=True):
            rows = rows.index_copy(0, where, part)
        return rows

    def weights(self) -> Sequence[Tensor]:
        """The rows of each cluster's tokens: [size, width].

        Split at once: the gradient of each slice by itself would be as large as the table.
        """
        if len(self.tables) == len(self.clusters):
            return list(self.tables)
        return self.tables[0].split([cluster.size for cluster in self.clusters])

"""A dense log-softmax and a token-by-token embedding, from the weights of an adaptive one."""

import torch
from torch import Tensor

from txlbench.config.model import ModelConfig
from txlbench.models.transformer import Transformer


def cluster_of(config: ModelConfig, token: int) -> int:
    return sum(token >= cutoff for cutoff in config.cutoffs)


def row_of(model: Transformer, token: int) -> Tensor:
    """The token's own embedding, before its projection."""
    tables = model.embedding.tables
    if len(tables) == 1:
        return tables[0][token]
    cluster = cluster_of(model.config, token)
    return tables[cluster][token - (0, *model.config.cutoffs)[cluster]]


def embedded(model: Transformer, token: int) -> Tensor:
    """What the embedding must give for one token: [D]."""
    row, projections = row_of(model, token), model.embedding.projections
    if len(projections):
        only = len(projections) == 1
        row = projections[0 if only else cluster_of(model.config, token)] @ row
    return row * model.config.d_model**0.5


def output_projection(model: Transformer, cluster: int) -> Tensor | None:
    """The softmax's projection of a cluster as the official flags say: own, tied or none."""
    config, tied = model.config, model.config.tie_projs
    assert tied is not None
    if config.div_val == 1 and config.d_embed == config.d_model:
        return None
    if not tied[cluster]:
        return model.softmax.projections[list(tied[:cluster]).count(False)]
    return model.embedding.projections[0 if config.div_val == 1 else cluster]


def dense_log_probs(model: Transformer, hidden_ND: Tensor) -> Tensor:
    """[N, V], one token after the other: log p(cluster) + log p(token | cluster)."""
    config, softmax = model.config, model.softmax
    vocabulary, tails = len(softmax.bias), len(config.cutoffs)

    def logit(token: int) -> Tensor:
        return project(cluster_of(config, token)) @ row_of(model, token) + softmax.bias[token]

    def project(cluster: int) -> Tensor:
        projection = output_projection(model, cluster)
        return hidden_ND if projection is None else hidden_ND @ projection

    members = [
        [token for token in range(vocabulary) if cluster_of(config, token) == cluster]
        for cluster in range(tails + 1)
    ]
    entries = [
        project(0) @ softmax.cluster_weight[tail] + softmax.cluster_bias[tail]
        for tail in range(tails)
    ]
    head = torch.stack([logit(token) for token in members[0]] + entries).log_softmax(dim=0)
    columns = list(head[: len(members[0])])
    for tail in range(tails):
        inside = torch.stack([logit(token) for token in members[tail + 1]]).log_softmax(dim=0)
        columns += list(head[len(members[0]) + tail] + inside)
    return torch.stack(columns, dim=1)

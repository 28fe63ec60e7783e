"""How `cutoffs` and `div_val` divide a vocabulary into clusters."""

from dataclasses import dataclass
from itertools import pairwise

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError


@dataclass(frozen=True)
class Cluster:
    """The token ids first, ..., end - 1, embedded in `width` dimensions."""

    first: int
    end: int
    width: int

    @property
    def size(self) -> int:
        return self.end - self.first


def clusters_of(config: ModelConfig, vocabulary_size: int) -> list[Cluster]:
    """The head cluster, then the tails, each narrower by `div_val` than the one before.

    Raises:
        UserError: if a cutoff lies beyond the vocabulary.
    """
    if config.cutoffs and config.cutoffs[-1] >= vocabulary_size:
        raise UserError(
            f"model.cutoffs: {list(config.cutoffs)} reach beyond the vocabulary of "
            f"{vocabulary_size}",
            f"keep every cutoff under {vocabulary_size}",
        )
    edges = (0, *config.cutoffs, vocabulary_size)
    return [
        Cluster(first, end, config.embed_size // config.div_val**index)
        for index, (first, end) in enumerate(pairwise(edges))
    ]


def softmax_projections(config: ModelConfig) -> list[bool]:
    """For each cluster, whether the softmax has a projection of its own (official flags).

    There is none where embedding and model have one size and `div_val` is 1; a tied one is the
    embedding's.
    """
    assert config.tie_projs is not None
    needed = config.div_val > 1 or config.embed_size != config.d_model
    return [needed and not tied for tied in config.tie_projs]

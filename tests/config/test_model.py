"""Clusters tile the vocabulary, and projections follow the official flags."""

import pytest

from txlbench.config.model import Cluster, ModelConfig, clusters_of, softmax_projections
from txlbench.errors import UserError


def test_clusters_tile_the_vocabulary_and_narrow():
    config = ModelConfig(d_model=64, cutoffs=(10, 30), div_val=4)
    assert clusters_of(config, 100) == [
        Cluster(0, 10, 64),
        Cluster(10, 30, 16),
        Cluster(30, 100, 4),
    ]
    assert [cluster.size for cluster in clusters_of(config, 100)] == [10, 20, 70]


def test_without_cutoffs_there_is_one_cluster():
    assert clusters_of(ModelConfig(d_model=64, d_embed=16), 9) == [Cluster(0, 9, 16)]


@pytest.mark.parametrize("vocabulary", [30, 29, 5])
def test_a_cutoff_leaves_at_least_one_token_after_it(vocabulary: int):
    config = ModelConfig(cutoffs=(10, 30))
    assert clusters_of(config, 31)[-1].size == 1
    with pytest.raises(UserError, match=rf"\[10, 30\] reach beyond .* keep .* under {vocabulary}"):
        clusters_of(config, vocabulary)


@pytest.mark.parametrize(
    ("d_embed", "div_val", "expected"),
    [(64, 1, [False, False]), (32, 1, [True, False]), (64, 2, [True, False])],
)
def test_a_projection_of_its_own_where_one_is_needed_and_not_tied(
    d_embed: int, div_val: int, expected: list[bool]
):
    config = ModelConfig(
        d_model=64, d_embed=d_embed, div_val=div_val, cutoffs=(10,), tie_projs=(False, True)
    )
    assert softmax_projections(config) == expected


def test_an_architecture_of_transformers_is_named_by_its_type():
    model = ModelConfig.model_validate(
        {"kind": "hf", "architecture": "llama", "config": {"hidden_size": 8}, "d_model": 64}
    )
    assert model.name == "llama"
    assert model.d_model == ModelConfig().d_model  # of no account, so that it changes no identity
    assert not model.is_recurrent
    assert ModelConfig(kind="hf", architecture="mamba2").is_recurrent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "hf"}, "kind hf needs model.architecture"),
        ({"architecture": "llama"}, "architecture and config go with kind hf"),
        ({"config": {"hidden_size": 8}}, "architecture and config go with kind hf"),
        ({"kind": "hf", "architecture": "me/model"}, "String should match pattern"),
    ],
)
def test_architectures_go_with_their_kind(given, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.model_validate(given)

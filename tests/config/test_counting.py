"""Parameters by formula equal the built module's, and the published models' to the last one."""

from itertools import product
from typing import Any

import pytest
import torch

from tests.config.experiments import run
from txlbench.config.catalogue import CORPORA, ENCODINGS, load_class
from txlbench.config.counting import parameters, train_flops, train_targets
from txlbench.config.model import ModelConfig

SMALL = {"n_layer": 3, "d_model": 24, "n_head": 3, "d_head": 7, "d_inner": 10}

MODELS_OF_EACH_KIND: list[dict[str, Any]] = [
    {"encoding": "xl"},
    {"encoding": "xl", "untie_r": True},
    {"encoding": "shaw", "max_distance": 9},
    {"encoding": "shaw", "max_distance": 9, "shaw_bias": True},
    {"encoding": "absolute"},
    {"encoding": "al-rfou", "max_distance": 9},
    *({"encoding": name, "max_distance": 9} for name in ENCODINGS),
    {"memory": "compressive", "compress_rate": 4},
    {"memory": "shift"},
    {"kind": "lstm"},
    {"kind": "qrnn"},
    {"kind": "gla"},
    {"kind": "gated-delta"},
]
OUTPUTS: list[dict[str, Any]] = [
    {},
    {"d_embed": 13},
    {"cutoffs": (5, 12)},
    {"cutoffs": (5, 12), "d_embed": 13},
    {"cutoffs": (5, 12), "d_embed": 13, "tie_projs": (True, False, True)},
    {"cutoffs": (5, 12), "div_val": 2},
    {"cutoffs": (5, 12), "div_val": 4, "tie_projs": (False, True, True)},
    {"cutoffs": (5,), "div_val": 3, "d_embed": 13, "tie_projs": (True, True)},
    {"div_val": 2, "pre_lnorm": True},
]


def built(config: ModelConfig, vocabulary: int) -> int:
    """Weights of the module itself, made without memory for them."""
    with torch.device("meta"):
        model = load_class(config.kind_entry.target)(config, vocabulary)
        return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("model", MODELS_OF_EACH_KIND, ids=str)
def test_the_formula_equals_the_built_module(model: dict[str, Any]):
    for output, vocabulary in product(OUTPUTS, (17, 31)):
        config = ModelConfig.model_validate({**SMALL, **model, **output})
        assert parameters(config, vocabulary) == built(config, vocabulary), output


WT103 = {"cutoffs": (20000, 40000, 200000), "tie_projs": (False, True, True, True)}
LM1B = {"cutoffs": (60000, 100000, 640000), "div_val": 4}


def sizes(n_layer: int, d_model: int, n_head: int, d_head: int, d_inner: int) -> dict[str, int]:
    names = ("n_layer", "d_model", "n_head", "d_head", "d_inner")
    return dict(zip(names, (n_layer, d_model, n_head, d_head, d_inner), strict=True))


PUBLISHED = {
    "wt103 base": (267_735, {**sizes(16, 410, 10, 41, 2100), **WT103}, 151_107_538),
    "wt103 large": (
        267_735,
        {**sizes(18, 1024, 16, 64, 4096), **WT103, "div_val": 4},
        285_170_506,
    ),
    "enwik8 base": (204, sizes(12, 512, 8, 64, 2048), 41_055_436),
    "enwik8 large": (204, sizes(24, 1024, 8, 128, 3072), 277_231_820),
    "text8 base": (27, sizes(12, 512, 8, 64, 2048), 40_964_635),
    "text8 large": (27, sizes(24, 1024, 8, 128, 3072), 277_050_395),
    "lm1b table 4": (793_470, {**sizes(20, 1024, 8, 128, 6144), **LM1B}, 469_020_513),
    "lm1b script": (793_470, {**sizes(18, 1024, 8, 128, 4096), **LM1B}, 357_812_065),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_official_models_have_the_official_number_of_parameters(name: str):
    vocabulary, settings, expected = PUBLISHED[name]
    config = ModelConfig.model_validate(settings)
    assert parameters(config, vocabulary) == expected
    assert built(config, vocabulary) == expected


def test_the_catalogue_has_the_vocabulary_of_the_published_models():
    assert CORPORA["wt103"].vocabulary_size == 267_735
    assert CORPORA["enwiki-sample"].vocabulary_size == 256


def test_targets_count_what_is_trained_on():
    train = {"batch_size": 3, "max_step": 10, "tgt_len": 7, "batch_chunk": 3}
    assert train_targets(run(train=train)) == 3 * 10 * 7
    assert train_targets(run(train={**train, "loss": "half"})) == 3 * 10 * 4


def test_flops_of_a_model_small_enough_to_count_by_hand():
    model = {"encoding": "absolute", **sizes(1, 2, 1, 2, 3)}
    config = run(
        model=model,
        train={"tgt_len": 3, "recurrence": False, "batch_size": 1, "max_step": 1},
    )
    projections = 4 * 2 * 2 + 2 * 2 * 3  # q, k, v, o and two of the feed-forward part
    attention = 2 * 2 * 2  # scores and values over (1 + 2 + 3) / 3 keys
    softmax = 5 * 2
    assert train_flops(config, 5) == 6 * 3 * (projections + attention + softmax)


def test_flops_of_an_adaptive_softmax_count_tails_as_often_as_they_are_met():
    """By Zipf's law: tail 1 holds the ranks 51 to 200, tail 2 those up to 800."""
    harmonic = [sum(1 / rank for rank in range(1, n + 1)) for n in range(801)]
    model = {"encoding": "absolute", **sizes(1, 4, 1, 2, 3)}
    train = {"tgt_len": 1, "recurrence": False, "batch_size": 1, "max_step": 1}

    def softmax(vocabulary: int, **settings: Any) -> float:
        full = train_flops(run(model={**model, **settings}, train=train), vocabulary)
        return full / 6 - (4 * 4 * 2 + 2 * 4 * 3 + 2 * 1 * 2)

    assert softmax(800) == 800 * 4
    assert softmax(800, d_embed=3) == (800 + 4) * 3 + 4 * 3  # projected in and out
    first, second = (
        (harmonic[end] - harmonic[begin]) / harmonic[800] for begin, end in ((50, 200), (200, 800))
    )
    embedding = 4 * ((1 - first - second) * 4 + first * 2 + second * 1)
    narrow = embedding + (50 + 2 + 4) * 4 + first * (150 + 4) * 2 + second * (600 + 4) * 1
    assert softmax(800, cutoffs=(50, 200), div_val=2) == pytest.approx(narrow, rel=0.01)
    wide = (50 + 2) * 4 + first * 150 * 4 + second * 600 * 4
    assert softmax(800, cutoffs=(50, 200)) == pytest.approx(wide, rel=0.01)


def test_flops_grow_with_memory_and_relative_positions():
    def flops(encoding: str, **train: Any) -> int:
        return train_flops(run(model={"encoding": encoding}, train=train), 256)

    assert flops("xl") > flops("xl", mem_len=32) > flops("xl", recurrence=False)
    assert flops("xl") == flops("shaw") > flops("absolute") == flops("al-rfou")
    assert flops("alibi") == flops("absolute") < flops("rope") < flops("xl")
    assert flops("xl", max_step=10) * 3 == flops("xl", max_step=30)

"""The work that is timed is that of the published sizes, and counted by hand."""

import pytest

from txlbench.config.benchmarks import SIZES, VOCABULARY, workloads
from txlbench.config.counting import parameters


def of(work, size="small", mem_len=None):
    found = [each for each in workloads(list(SIZES)) if (each.work, each.size) == (work, size)]
    return next(each for each in found if mem_len in (None, each.mem_len))


def test_sizes():
    small, base = SIZES["small"].model, SIZES["base"].model
    assert (small.n_layer, small.d_model, small.n_head, small.d_head) == (4, 256, 4, 64)
    assert (base.n_layer, base.d_model, base.n_head, base.d_head) == (12, 512, 8, 64)
    assert parameters(base, VOCABULARY) == pytest.approx(41e6, rel=0.02)  # the paper's 41M


def test_training_works_on_each_projection_once_and_the_memorys_keys_and_values():
    width, inner, layers, length = 256, 1024, 4, 128
    keys = 128 + 129 / 2
    token = 4 * width**2 + 2 * width * inner  # projections
    token += 2 * width**2 * 128 / length  # of the memory
    token += 3 * keys * width  # content, position, values
    forward = 2 * (layers * token + width * VOCABULARY)
    assert of("train").flops == pytest.approx(3 * forward)


def test_evaluation_keeps_keys_and_values():
    width, inner, layers = 256, 1024, 4
    token = 4 * width**2 + 2 * width * inner + 3 * (640 + 65 / 2) * width
    assert of("eval").flops == pytest.approx(2 * (layers * token + width * VOCABULARY))
    assert of("context_losses").flops is None


def test_one_repetition():
    assert of("train").tokens == 16 * 128
    assert of("train", "base").tokens == 2 * 512
    assert of("generate", mem_len=3800).tokens == 20
    assert of("eval").tokens == 5 * 10 * 64


def test_evaluation_and_generation_are_of_small_only():
    assert {each.work for each in workloads(["base"])} == {"train"}

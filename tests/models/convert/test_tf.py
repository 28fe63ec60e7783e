"""The released TensorFlow code's checkpoints, as TensorFlow writes them."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.convert.scored import GOLDEN, golden, losses, same_weights
from txlbench.errors import UserError
from txlbench.models.convert.hf import read_hf
from txlbench.models.convert.tf import TensorBundle, read_tf

TF = GOLDEN / "tf"
CASES = ["plain", "narrow", "shared", "own"]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A copy of a checkpoint, to be changed."""
    for file in TF.glob("shared.*"):
        shutil.copy(file, tmp_path)
    return tmp_path / "shared"


def variables(case: str) -> dict[str, Any]:
    """The variables of a checkpoint by name."""
    bundle = TensorBundle(TF / case)
    return {name: bundle.read(name) for name in bundle.entries}


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_gives_the_weights_of_its_hugging_face_twin(case: str):
    found, twin = read_tf(TF / case), read_hf(GOLDEN / case)
    assert same_weights(found, twin)
    ties = found.config.tie_projs if case != "plain" else twin.config.tie_projs
    assert found.config == twin.config.model_copy(
        update={"dropout": 0.0, "tie_projs": ties, "pre_lnorm": False}
        | {"clamp_len": None, "same_length": False}
    )
    assert found.vocabulary_size == 50
    np.testing.assert_allclose(losses(found, GOLDEN / case), golden(case), rtol=0, atol=2e-5)


def test_a_projection_that_the_code_leaves_out_becomes_the_identity():
    """As in the published lm1b model (`proj_same_dim` off): nothing is computed differently."""
    found, twin = read_tf(TF / "unprojected"), read_hf(GOLDEN / "own")
    assert found.config.tie_projs == (True, False, False)
    first = [name for name in twin.weights if name.endswith("projections.0")]
    assert len(first) == 3
    identity = dict.fromkeys(first, torch.eye(16))
    expected = replace(twin, weights={**twin.weights, **identity})
    np.testing.assert_array_equal(losses(found, GOLDEN / "own"), losses(expected, GOLDEN / "own"))
    assert np.abs(losses(found, GOLDEN / "own") - golden("own")).max() > 1


def test_other_variables_are_left_alone():
    names = set(TensorBundle(TF / "shared").entries)
    assert {"global_step", "transformer/r_w_bias/Adam"} <= names
    assert not any("not used" in note for note in read_tf(TF / "shared").notes)


def test_variables_that_no_weight_is_made_of_are_told(tmp_path: Path):
    content = variables("plain")
    content |= {"transformer/layer_9/ff/layer_1/bias": np.ones(3), "head/kernel": np.ones((2, 2))}
    np.savez(tmp_path / "model.npz", **content)
    *_, note = read_tf(tmp_path / "model.npz").notes
    assert note == "not used: 2 variables of the checkpoint, such as head/kernel"


def test_a_projection_without_clusters_is_the_embeddings(tmp_path: Path):
    content = variables("plain")
    content["transformer/adaptive_embed/lookup_table"] = np.ones((50, 9), np.float32)
    content["transformer/adaptive_embed/proj_W"] = np.ones((9, 16), np.float32)
    np.savez(tmp_path / "model.npz", **content)
    found = read_tf(tmp_path / "model.npz").config
    assert (found.tie_projs, found.d_embed, found.cutoffs) == ((True,), 9, ())


@pytest.mark.parametrize("case", CASES)
def test_an_npz_of_the_variables_does_as_well(tmp_path: Path, case: str):
    np.savez(tmp_path / "model.npz", **variables(case))
    assert same_weights(read_tf(tmp_path / "model.npz"), read_tf(TF / case))


@pytest.mark.parametrize(
    "missing",
    [
        "layer_1/rel_attn/LayerNorm/gamma",
        "adaptive_softmax/cutoff_0/cluster_W",
        "adaptive_embed/cutoff_2/lookup_table",
        "r_r_bias",
    ],
)
def test_a_missing_variable_is_named(tmp_path: Path, missing: str):
    content = variables("shared")
    del content[f"transformer/{missing}"]
    np.savez(tmp_path / "model.npz", **content)
    with pytest.raises(UserError, match=rf"model\.npz: transformer/{missing}: missing"):
        read_tf(tmp_path / "model.npz")


def test_objects_in_an_npz_are_refused(tmp_path: Path):
    content = variables("plain") | {"transformer/r_w_bias": np.array([{}], dtype=object)}
    np.savez(tmp_path / "model.npz", **content)
    with pytest.raises(UserError, match=r"model\.npz: .*r_w_bias"):
        read_tf(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda index, data: index.unlink(), r"shared\.index: no such file"),
        (lambda index, data: data.unlink(), r"shared\.data-00000-of-00001: .*: missing or cut off"),
        (
            lambda index, data: data.write_bytes(data.read_bytes()[:-100]),
            r"shared\.data-00000-of-00001: .*: missing or cut off",
        ),
        (lambda index, data: index.write_bytes(b""), "not a checkpoint's index"),
        (
            lambda index, data: index.write_bytes(index.read_bytes()[200:]),
            "not a checkpoint's index",
        ),
        (
            lambda index, data: index.write_bytes(b"\xff" * 900 + index.read_bytes()[900:]),
            "not a checkpoint's index",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_file(prefix: Path, spoil: Any, message: str):
    spoil(prefix.with_name("shared.index"), prefix.with_name("shared.data-00000-of-00001"))
    with pytest.raises(UserError, match=message):
        read_tf(prefix)

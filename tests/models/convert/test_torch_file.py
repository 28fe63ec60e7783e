"""The released PyTorch code's files: read to the same numbers, and never executed."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.convert.official_modules import Call, hf_tensors, official_classes, save_official
from tests.models.convert.scored import GOLDEN, TIED, golden, losses, same_weights
from txlbench.errors import UserError
from txlbench.models.convert.hf import read_hf
from txlbench.models.convert.torch_file import read_torch

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before-1.6"])


@FORMATS
@pytest.mark.parametrize("case", TIED)
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_pickled_model_gives_the_losses_of_its_hugging_face_twin(
    tmp_path: Path, case: str, zipped: bool
):
    save_official(tmp_path / "model.pt", case, _use_new_zipfile_serialization=zipped)
    found, twin = read_torch(tmp_path / "model.pt"), read_hf(GOLDEN / case)
    assert same_weights(found, twin)
    assert found.config == twin.config
    assert (found.mem_len, found.tgt_len) == (twin.mem_len, 16)
    assert found.notes == ()
    np.testing.assert_allclose(losses(found, GOLDEN / case), golden(case), atol=1e-4)


@pytest.mark.parametrize("case", ["narrow", "shared"])
def test_tail_clusters_in_the_other_order_are_caught_by_the_losses(tmp_path: Path, case: str):
    save_official(tmp_path / "model.pt", case, turn=False)
    found = losses(read_torch(tmp_path / "model.pt"), GOLDEN / case)
    assert np.abs(found - golden(case)).mean() > 0.1


@pytest.mark.parametrize("holder", [None, "model", "state_dict", "model_state"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_a_state_dict_tells_the_configuration_by_its_shapes(
    tmp_path: Path, prefix: str, holder: str | None
):
    tensors = hf_tensors("shared")
    for name in ("crit.cluster_weight", "crit.cluster_bias"):
        tensors[name] = tensors[name].flip(0)
    content = {prefix + name: value for name, value in tensors.items()}
    torch.save({holder: content, "epoch": 3} if holder else content, tmp_path / "model.pt")
    found, twin = read_torch(tmp_path / "model.pt"), read_hf(GOLDEN / "shared")
    assert same_weights(found, twin)
    unknown = {"dropout": 0.0, "clamp_len": None, "same_length": False}
    assert found.config == twin.config.model_copy(update=unknown)
    assert (found.mem_len, found.tgt_len) == (None, None)
    assert any("pre_lnorm" in note for note in found.notes)


def test_clusters_of_one_table_are_not_guessed(tmp_path: Path):
    torch.save(hf_tensors("narrow"), tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"model\.pt: crit\.cluster_weight: 2 tail clusters"):
        read_torch(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word_emb.emb_layers.0.weight": None}, r"word_emb\.emb_layers\.0\.weight: missing"),
        ({"layers.0.pos_ff.CoreNet.3.weight": torch.zeros(3, 3)}, r"CoreNet\.3\.weight: shape"),
        ({"crit.out_layers.0.weight": torch.zeros(50, 16)}, r"out_layers\.0\.weight: differs"),
        ({"layers.0.extra": torch.zeros(1)}, r"layers\.0\.extra: not a weight"),
        ({"r_w_bias": torch.zeros(2, 7).long()}, "r_w_bias: int64 found"),
        ({"transformer.r_w_bias": torch.zeros(2, 7)}, "Hugging Face's names"),
        ({"epoch": 3}, "neither a model nor a state dict"),
        ({"ema": hf_tensors("plain"), "epoch": 3}, "what is under 'ema' alone"),
        ({"r_w_bias": torch.full((2, 7), float("nan"))}, "r_w_bias: NaN or infinite values"),
        ({"r_r_bias": torch.full((2, 7), float("inf"))}, "r_r_bias: NaN or infinite values"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused_by_key(
    tmp_path: Path, change: dict[str, Any], message: str
):
    content = {**hf_tensors("plain"), **change}
    torch.save({k: v for k, v in content.items() if v is not None}, tmp_path / "model.pt")
    with pytest.raises(UserError, match=rf"model\.pt: .*{message}"):
        read_torch(tmp_path / "model.pt")


@FORMATS
def test_a_pickle_that_would_run_code_is_refused_by_name_and_does_not_run(
    tmp_path: Path, zipped: bool
):
    path, trace = tmp_path / "model.pt", tmp_path / "trace"
    torch.save({"a": Call(os.mkdir, str(trace))}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"model\.pt: it would call posix\.mkdir"):
        read_torch(path)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists(), "the file must be one that runs when it is unpickled"


@FORMATS
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_code_inside_a_model_is_refused_as_well(tmp_path: Path, zipped: bool):
    path, trace = tmp_path / "model.pt", tmp_path / "trace"
    with official_classes() as classes:
        model = classes["MemTransformerLM"]()
        model.word_emb = classes["AdaptiveEmbedding"]()
        model.word_emb.cutoffs = Call(eval, f"__import__('os').mkdir({str(trace)!r})")
        torch.save(model, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match="it would call eval"):
        read_torch(path)
    assert not trace.exists()


def test_a_stand_in_cannot_be_called_into_doing_anything(tmp_path: Path):
    with official_classes() as classes:
        content = {"a": Call(classes["MemTransformerLM"], "argument")}
        torch.save(content, tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"model\.pt: not a readable torch file"):
        read_torch(tmp_path / "model.pt")


@pytest.mark.parametrize(
    "content", [b"", b"no pickle", pickle.dumps({"a": 1}), b"\x80\x02]q\x00."], ids=repr
)
def test_other_files_are_refused(tmp_path: Path, content: bytes):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.pt: "):
        read_torch(tmp_path / "model.pt")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"model\.pt: no such file"):
        read_torch(tmp_path / "model.pt")


def test_other_attention_types_are_refused(tmp_path: Path):
    with official_classes() as classes:
        model = classes["MemTransformerLM"]()
        model.attn_type = 2
        torch.save(model, tmp_path / "model.pt")
    with pytest.raises(UserError, match="attn_type: 2 found"):
        read_torch(tmp_path / "model.pt")

"""Hugging Face's folders: the same losses at every token, and a round trip without loss."""

import json
import os
import shutil
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.models.convert.official_modules import Call
from tests.models.convert.scored import CASES, GOLDEN, golden, losses, of_our_own, same_weights
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.convert.hf import read_hf, write_hf
from txlbench.models.convert.official import Converted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a golden folder, to be changed."""
    return shutil.copytree(GOLDEN / "shared", tmp_path / "model")


def edit(folder: Path, **keys: Any) -> None:
    """Sets keys of config.json; None takes a key away."""
    path = folder / "config.json"
    content = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


@pytest.mark.parametrize("memory", ["empty", "zeros"])
@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_the_hugging_face_class(case: str, memory: str):
    found = losses(read_hf(GOLDEN / case), GOLDEN / case, memory)
    assert found.shape == (2, 151)
    np.testing.assert_allclose(found, golden(case, memory), rtol=0, atol=2e-5)


def test_the_golden_losses_depend_on_what_they_are_to_test():
    """Memory, clamp, same_length, and the initial memory each change them."""
    shared = read_hf(GOLDEN / "shared")
    assert np.abs(golden("shared") - golden("shared", "zeros")).max() > 0.1
    assert (shared.mem_len, shared.config.clamp_len, shared.config.same_length) == (40, 30, True)
    assert golden("shared").std() > 1


@pytest.mark.parametrize("case", ["one-table", "narrow", "shared", "own"])
def test_tail_clusters_in_the_other_order_are_caught_by_the_losses(case: str):
    found = losses(read_hf(GOLDEN / case, reversed_clusters=True), GOLDEN / case)
    assert np.abs(found - golden(case)).mean() > 0.1


@pytest.mark.parametrize("case", CASES)
def test_the_round_trip_is_exact(tmp_path: Path, case: str):
    read = replace(read_hf(GOLDEN / case), tokens=tuple(f"w{number}" for number in range(50)))
    write_hf(read, tmp_path / "once")
    again = read_hf(tmp_path / "once")
    assert same_weights(again, read)
    assert replace(again, weights=read.weights) == read
    write_hf(again, tmp_path / "twice")
    for file in ("config.json", "model.safetensors", "vocab.txt"):
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "twice" / file).read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"cutoffs": [5, 9, 20], "div_val": 2, "tie_projs": [True, False, True, False]},
        {"d_embed": 7, "tie_projs": [True], "untie_r": True, "pre_lnorm": True},
        {"cutoffs": [5], "d_embed": 7, "tie_projs": [False, True], "dropatt": 0.3},
        {"div_val": 3, "n_layer": 1, "init_std": 0.005},
    ],
    ids=str,
)
def test_our_own_models_survive_the_round_trip(tmp_path: Path, settings: dict[str, Any]):
    model = replace(of_our_own(**settings), mem_len=8, tgt_len=4)
    write_hf(model, tmp_path / "model")
    again = read_hf(tmp_path / "model")
    assert same_weights(again, model)
    assert replace(again, weights=model.weights) == model


def test_what_is_written_has_no_tied_weight_twice(tmp_path: Path):
    write_hf(read_hf(GOLDEN / "shared"), tmp_path / "model")
    names = set(load_file(tmp_path / "model" / "model.safetensors"))
    saved = json.loads((GOLDEN / "shared" / "model.safetensors.index.json").read_text())
    assert names == set(saved["weight_map"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoding": "shaw", "max_distance": 9}, r"model\.encoding: shaw"),
        ({"kind": "lstm"}, r"model\.kind: lstm"),
        ({"memory": "shift"}, r"model\.memory: shift"),
        ({"memory": "sinks"}, r"model\.memory: sinks"),
        ({"memory": "compressive"}, r"model\.memory: compressive"),
        ({"d_model": 13}, r"model\.d_model: 13 is odd"),
        ({"clamp_len": 0}, "clamp_len: 0"),
        ({"same_length": True}, "same_length: without mem_len"),
    ],
)
def test_what_the_class_cannot_express_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
):
    model = of_our_own(**settings)
    with pytest.raises(UserError, match=message):
        write_hf(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_with_content_is_not_overwritten(folder: Path):
    before = (folder / "config.json").read_bytes()
    with pytest.raises(UserError, match="model: not empty"):
        write_hf(read_hf(folder), folder)
    assert (folder / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "gpt2"}, "model_type: 'gpt2' found"),
        ({"attn_type": 1}, "attn_type: 1 found"),
        ({"layer_norm_epsilon": 1e-12}, "layer_norm_epsilon: 1e-12 found"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: False found"),
        ({"n_layer": "2"}, "n_layer: .*'2'"),
        ({"cutoffs": [30, 12]}, "cutoffs"),
        ({"mem_len": 0}, "same_length: true with mem_len 0"),
        ({"vocab_size": "50"}, "vocab_size: '50' found"),
    ],
    ids=str,
)
def test_other_configurations_are_refused_by_key(folder: Path, keys: dict[str, Any], message: str):
    edit(folder, **keys)
    with pytest.raises(UserError, match=rf"config\.json: .*{message}"):
        read_hf(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"d_inner": 25}, r"CoreNet\.0\.weight: shape \[24, 16\] found"),
        ({"n_layer": 3}, r"layers\.2\..*: missing"),
        ({"n_layer": 1}, r"layers\.1\..*: not a weight"),
        ({"tie_projs": [False, False, True]}, r"crit\.out_projs\.1: missing"),
    ],
    ids=str,
)
def test_weights_that_do_not_fit_are_refused_by_key(
    folder: Path, keys: dict[str, Any], message: str
):
    edit(folder, **keys)
    with pytest.raises(UserError, match=rf"index\.json: .*{message}"):
        read_hf(folder)


def test_older_names_and_the_flag_for_projections_are_understood(folder: Path):
    expected = read_hf(folder)
    edit(folder, vocab_size=None, n_token=50, tie_projs=None, proj_share_all_but_first=True)
    edit(folder, n_layer=None, num_hidden_layers=2, tgt_len=16)
    assert read_hf(folder).config == expected.config
    assert read_hf(folder).tgt_len == 16
    edit(folder, proj_share_all_but_first=False)
    with pytest.raises(UserError, match=r"crit\.out_projs\.1: missing"):
        read_hf(folder)


def test_layers_that_differ_need_untie_r(folder: Path):
    shutil.copy(GOLDEN / "own" / "model.safetensors", folder)
    with pytest.raises(UserError, match="r_w_bias: layers differ"):
        read_hf(folder)


def test_half_precision_weights_become_float32(tmp_path: Path):
    folder = shutil.copytree(GOLDEN / "plain", tmp_path / "model")
    whole = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save({k: v.half() for k, v in whole.items()}, folder / "pytorch_model.bin")
    expected = {name: w.half().float() for name, w in read_hf(GOLDEN / "plain").weights.items()}
    assert same_weights(read_hf(folder), Converted(ModelConfig(), 50, expected))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "vocab.bin"])
def test_a_pickle_that_would_run_code_is_refused_by_name_and_does_not_run(
    tmp_path: Path, name: str
):
    folder = shutil.copytree(GOLDEN / "plain", tmp_path / "model")
    torch.save({"idx2sym": Call(os.mkdir, str(tmp_path / "trace"))}, folder / name)
    with pytest.raises(UserError, match=rf"{name}: it would call posix\.mkdir"):
        read_hf(folder)
    assert not (tmp_path / "trace").exists()


TOKENS = tuple(f"w{number}" for number in range(50))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", "".join(f"{token} 17\n" for token in TOKENS).encode()),
        ("vocab.json", json.dumps(TOKENS).encode()),
        ("vocab.json", json.dumps({t: n for n, t in reversed([*enumerate(TOKENS)])}).encode()),
    ],
)
def test_a_vocabulary_is_read_in_order_of_id(folder: Path, name: str, content: bytes):
    assert read_hf(folder).tokens is None
    (folder / name).write_bytes(content)
    assert read_hf(folder).tokens == TOKENS


def test_the_tokenizers_attributes_are_read_without_their_pickle(folder: Path):
    symbols = OrderedDict((token, number) for number, token in enumerate(TOKENS))
    attributes = {"idx2sym": list(TOKENS), "sym2idx": symbols, "counter": Counter("abc")}
    torch.save(attributes, folder / "vocab.bin")
    (folder / "vocab.pkl").write_bytes(b"never opened")
    assert read_hf(folder).tokens == TOKENS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"a\nb\n", "2 tokens found, but the model has 50"),
        ("vocab.txt", b"a\n" * 50, "not different strings"),
        ("vocab.txt", b"\xff\n", "not UTF-8"),
        ("vocab.json", b'{"a": 0, "b": 7}', "ids are not 0 to 1"),
        ("vocab.json", b"3", "not different strings"),
    ],
)
def test_a_vocabulary_of_another_model_is_refused(
    folder: Path, name: str, content: bytes, message: str
):
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: .*{message}"):
        read_hf(folder)


def test_tokens_that_lines_cannot_hold_survive(tmp_path: Path):
    tokens = ("\n", " ", "a b", "", *TOKENS[4:])
    read = replace(read_hf(GOLDEN / "own"), tokens=tokens)
    write_hf(read, tmp_path / "model")
    assert read_hf(tmp_path / "model").tokens == tokens


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"config\.json: no such file"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: not a JSON"),
        (
            lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(),
            r"model-00002-of-00003\.safetensors: no such file",
        ),
        (
            lambda folder: (folder / "model-00002-of-00003.safetensors").write_bytes(b"version"),
            r"model-00002-of-00003\.safetensors: not a safetensors file",
        ),
        (
            lambda folder: (folder / "model.safetensors.index.json").unlink(),
            "no weights; it needs one of",
        ),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "../other.safetensors"}}'
            ),
            r"index\.json: weight_map: '\.\./other\.safetensors' leaves the folder",
        ),
    ],
)
def test_a_damaged_folder_is_refused_by_file(folder: Path, spoil: Any, message: str):
    spoil(folder)
    with pytest.raises(UserError, match=message):
        read_hf(folder)

"""What a stranger would try: sizes beyond any memory, places outside the folder, code, bombs."""

import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.convert.scored import GOLDEN
from txlbench.commands.load_model import import_model
from txlbench.commands.model_ref import resolve
from txlbench.commands.texts import read_ids
from txlbench.config.loading import parse_yaml
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import ImportedConfig
from txlbench.data.download import extract
from txlbench.errors import UserError
from txlbench.models.convert.hf import read_hf
from txlbench.models.convert.hf_files import read_weights
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.training import checkpoint

TEN_TB = 10**13
CPU = torch.device("cpu")


class Code:
    """Leaves a trace where it is executed."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_array_header_of_ten_terabytes(folder):
    header = io.BytesIO()
    described = {"descr": "<i8", "fortran_order": False, "shape": (TEN_TB // 8,)}
    np.lib.format.write_array_header_2_0(header, described)
    (folder / "a.npy").write_bytes(header.getvalue() + bytes(64))
    with pytest.raises(UserError, match=r"a\.npy"):
        read_ids(folder / "a.npy", 10)


def test_a_safetensors_header_of_ten_terabytes(folder):
    entry = {"dtype": "F32", "shape": [TEN_TB // 4], "data_offsets": [0, TEN_TB]}
    header = json.dumps({"a": entry}).encode()
    path = folder / "model.safetensors"
    for size in (len(header), TEN_TB):
        path.write_bytes(struct.pack("<Q", size) + header + bytes(64))
        with pytest.raises(UserError, match=r"model\.safetensors"):
            read_weights(folder)


@pytest.mark.parametrize("key", ["n_layer", "d_model", "d_inner", "d_head", "n_head", "vocab_size"])
@pytest.mark.parametrize("size", [2**31, 2**62, 10**30])
def test_a_folder_whose_configuration_is_huge(folder, key, size):
    for path in (GOLDEN / "plain").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, key: size}))
    with pytest.raises(UserError) as caught:
        read_hf(folder)
    assert "\n" not in str(caught.value)


def imported(**settings):
    """A run directory whose weights are of a small model and whose configuration says more."""
    run, _ = import_model(f"hf:{GOLDEN / 'plain'}", Path("run"))
    config = run.read_imported()
    model = ModelConfig.model_validate({**config.model.model_dump(mode="json"), **settings})
    run.write_imported(config.model_copy(update={"model": model}))
    return run


@pytest.mark.parametrize("settings", [{"n_layer": 2**31}, {"d_inner": 2**42}, {"d_inner": 2**62}])
def test_a_run_whose_configuration_is_huge(settings):
    imported(**settings)
    with pytest.raises(UserError) as caught:
        resolve("run").load(CPU)
    assert "best.pt" in str(caught.value)


def test_weights_of_another_run():
    run = imported()
    resolve("run").load(CPU)
    for weights in ({}, {"a": torch.ones(1)}, None):
        checkpoint.save_model(run.checkpoints / "best.pt", weights or {})
        with pytest.raises(UserError, match="not those of the run's model"):
            resolve("run").load(CPU)


def test_a_run_whose_vocabulary_is_huge():
    run = imported()
    config = run.read_imported()
    run.write_imported(ImportedConfig(**{**dict(config), "vocabulary_size": 2**50}))
    with pytest.raises(UserError, match="shape"):
        resolve("run").load(CPU)


def test_code_in_a_checkpoint_is_not_executed(folder):
    run = RunDirectory(folder / "run")
    run.checkpoints.mkdir(parents=True)
    torch.save({"schema": checkpoint.SCHEMA, "model": Code()}, run.checkpoints / "best.pt")
    run.set_state(RunState.IMPORTED)
    with pytest.raises(UserError, match=r"best\.pt"):
        checkpoint.load(run.checkpoints / "best.pt")
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_that_lead_elsewhere_are_never_written(folder, kind):
    names = ["../escaped", "/tmp/escaped", "a/../../escaped", "wanted"]
    path = folder / "in" / "archive"
    path.parent.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"x")
    else:
        with tarfile.open(path, "w") as archive:
            link = tarfile.TarInfo("wanted")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 1
                archive.addfile(member, io.BytesIO(b"x"))
    extract(path, {"wanted": folder / "out"})
    assert (folder / "out").read_bytes() == b"x"
    assert {each.name for each in folder.iterdir()} == {"in", "out"}


@pytest.mark.parametrize("kind", ["zip", "w:gz", "w:bz2", "w:xz"])
def test_a_bomb_is_refused_before_it_goes_off(folder, kind):
    size = 64 << 20
    if kind == "zip":
        with zipfile.ZipFile("bomb", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("wanted", bytes(size))
    else:
        with tarfile.open("bomb", kind) as archive:
            member = tarfile.TarInfo("wanted")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    with pytest.raises(UserError, match="would unpack to 67,108,864 bytes"):
        extract(Path("bomb"), {"wanted": folder / "out"})
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "a: !!python/object/apply:os.mkdir [executed]",
        "[" * 50_000,
        "a: " * 5_000,
        "{" * 3_000,
    ],
)
def test_yaml_that_grows_or_calls(folder, text):
    with pytest.raises(UserError):
        parse_yaml(text, "a.yaml")
    assert list(folder.iterdir()) == []

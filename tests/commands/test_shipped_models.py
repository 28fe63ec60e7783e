"""Models within Python packages: prepared once, whole, and as they should be."""

from dataclasses import replace

import pytest
import torch

from tests.models.pretrained.architectures import SIZE
from tests.models.pretrained.gguf_file import tiny_llama, write_gguf
from txlbench.commands import shipped_models
from txlbench.commands.model_ref import resolve
from txlbench.commands.shipped_models import SHIPPED, ShippedModel, folder_of, prepare_model
from txlbench.errors import UserError
from txlbench.models.pretrained.pretrained_model import open_gguf

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """A GGUF file and the network that is in it."""
    path, network = tmp_path_factory.mktemp("package") / "tiny.gguf", tiny_llama()
    write_gguf(path, network)
    return path, network


@pytest.fixture
def shipped(packaged, tmp_path, monkeypatch):
    """The catalogue with a model `tiny`, whose package is installed."""
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path))
    count = sum(weight.numel() for weight in packaged[1].parameters())
    tokens = SIZE + 1  # transformers adds the end of a text
    known = ShippedModel("tiny-package", "1.0", "tiny.gguf", count, tokens, "MIT", "tiny")
    monkeypatch.setitem(SHIPPED, "tiny", known)
    monkeypatch.setattr(shipped_models, "_installed", lambda _: packaged[0])
    return known


def losses(network, tokens):
    logits = network(input_ids=tokens[:, :-1]).logits
    return -logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]


@torch.no_grad()
def test_a_gguf_file_is_the_model_that_was_written(packaged):
    path, network = packaged
    source = open_gguf("gguf:it", path)
    assert (source.architecture, source.positions, source.vocabulary_size) == ("llama", 64, SIZE)
    tokens = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(1))
    found = source.load(CPU).token_losses(tokens)
    torch.testing.assert_close(found, losses(network, tokens), atol=1e-5, rtol=0)
    ids, ends = source.tokenizer.encode("naïve 😀\r\n")
    assert ends[-1] == len("naïve 😀\r\n".encode())
    assert source.tokenizer.decode(ids) == "naïve 😀\r\n"


@torch.no_grad()
def test_a_shipped_model_is_prepared_once_and_then_a_model(shipped, packaged):
    said = []
    with pytest.raises(UserError, match="not prepared yet; txlbench models prepare tiny"):
        resolve("tiny")
    folder = prepare_model("tiny", said.append)
    assert (folder, bool(said)) == (folder_of("tiny"), True)
    assert (folder / "model.safetensors").is_file()
    said.clear()
    assert prepare_model("tiny", said.append) == folder
    assert not said
    tokens = torch.randint(256, (1, 30), generator=torch.Generator().manual_seed(1))
    found = resolve("tiny").load(CPU).model.token_losses(tokens)
    torch.testing.assert_close(found, losses(packaged[1], tokens), atol=1e-5, rtol=0)


def test_what_breaks_off_leaves_nothing(shipped, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("txlbench.models.pretrained.text_tokenizer.TextTokenizer.save", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare_model("tiny", lambda _: None)
    assert not folder_of("tiny").exists()


def test_another_model_than_expected_is_refused(shipped, monkeypatch):
    monkeypatch.setitem(SHIPPED, "tiny", replace(shipped, parameters=7))
    with pytest.raises(UserError, match="7 and 265 expected"):
        prepare_model("tiny", lambda _: None)
    assert not folder_of("tiny").exists()


def test_a_package_that_cannot_be_had_is_one_line(shipped, monkeypatch):
    monkeypatch.setattr(shipped_models, "_installed", lambda _: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    said = []
    with pytest.raises(UserError, match="pip could not install it"):
        prepare_model("tiny", said.append)
    assert "installing tiny-package==1.0" in said[0]

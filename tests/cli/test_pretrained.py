"""Models of transformers on the command line: every verb, and one line for what is refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import normalizers

from tests.models.pretrained.architectures import byte_tokenizer, save_encoder, save_model
from txlbench.cli.main import main
from txlbench.data.download import data_root
from txlbench.errors import ExitStatus
from txlbench.models.pretrained.pretrained_model import open_folder
from txlbench.records.loss_file import read_loss_file

TEXT = "The quick brown fox jumps over the lazy dog. naïve 😀\r\n" * 30


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_model("llama", folder / "llama", bos=True)
    save_model("mamba", folder / "mamba", bos=True)
    (folder / "text.txt").write_text(TEXT, newline="")
    return folder


@pytest.fixture
def typed(models, tmp_path, monkeypatch, capfd):
    """Types a command in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))  # losses of earlier calls lie there

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["txlbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = capfd.readouterr()
        return ended.value.code, output, errors

    return run


def test_a_group_of_models_is_measured_and_kept(typed, models, tmp_path):
    given = ("--corpus", models / "text.txt", "--contexts", "8:32:8", "--tokens", 200)
    group = f"hf:{models / 'llama'},hf:{models / 'mamba'}"
    status, output, errors = typed("recl", "--models", group, *given, "--out", "out")
    assert (status, "windows to read" in errors) == (0, True), errors
    assert "llama" in output
    assert (tmp_path / "out" / "figures" / "recl_loss.png").is_file()
    record = json.loads((tmp_path / "out" / "recl.json").read_text())
    settings = [each["settings"] for each in record["models"].values()]
    assert [each["bos"] for each in settings] == [256, 256]
    assert [each["dtype"] for each in settings] == ["fp32", "fp32"]
    status, _, errors = typed("recl", "--models", group, *given, "--out", "again")
    assert (status, "windows to read" in errors) == (0, False)


def test_losses_are_those_of_each_context_fed_alone(typed, models):
    status, _, errors = typed(
        "recl", "--models", f"hf:{models / 'llama'}", "--corpus", models / "text.txt",
        "--contexts", "4:20:4", "--tokens", 200, "--out", "out",
    )  # fmt: skip
    assert status == 0, errors
    newest = max((data_root() / "losses").glob("all-*.npz"), key=lambda path: path.stat().st_mtime)
    kept, source = read_loss_file(newest), open_folder("it", models / "llama")
    ids, _ = source.tokenizer.encode(TEXT)
    network = source.load(torch.device("cpu")).network
    for c, t in ((0, 3), (2, 70), (4, 199)):
        position, context = int(kept.positions[t]), int(kept.contexts[c])
        fed = [256, *ids[position - context : position].tolist()]
        logits = network(input_ids=torch.tensor([fed])).logits[0, -1]
        alone = -logits.log_softmax(-1)[ids[position]]
        assert alone.item() == pytest.approx(float(kept.losses[c, t]), abs=1e-5)


@pytest.mark.full
def test_bf16_is_said_with_its_difference(typed, models):
    status, _, errors = typed(
        "recl", "--models", f"hf:{models / 'llama'}", "--corpus", models / "text.txt",
        "--contexts", "8:32:8", "--tokens", 200, "--precision", "bf16", "--out", "out",
    )  # fmt: skip
    assert status == 0, errors
    (source,) = json.loads(Path("out/recl.json").read_text())["models"].values()
    assert source["settings"]["dtype"] == "bf16"
    assert 1e-5 < source["settings"]["bf16_difference"] < 0.5


@pytest.mark.full
def test_attention_length_and_sinks_are_said_and_kept_apart(typed, models):
    def recl(*options):
        status, _, errors = typed(
            "recl", "--models", f"hf:{models / 'llama'}", "--corpus", models / "text.txt",
            "--contexts", "8:32:8", "--tokens", 200, *options, "--out", "out",
        )  # fmt: skip
        assert status == 0, errors
        (source,) = json.loads(Path("out/recl.json").read_text())["models"].values()
        return source, "windows to read" in errors

    whole, _ = recl()
    assert "sinks" not in whole["settings"]
    window, _ = recl("--attention-length", 4)
    sinks, _ = recl("--attention-length", 4, "--sinks", 2)
    keys = ("attention_length", "sinks", "positions")
    assert [window["settings"][key] for key in keys] == [4, 0, "in the window"]
    assert [sinks["settings"][key] for key in keys] == [4, 2, "in the window"]
    places = [each["path"] for each in (whole, window, sinks)]
    assert len({read_loss_file(Path(path)).losses.tobytes() for path in places}) == 3
    again, has_read = recl("--attention-length", 4, "--sinks", 2)
    assert (again["path"], has_read) == (sinks["path"], False)
    reach = read_loss_file(Path(window["path"])).losses  # of two layers, and BOS
    assert abs(reach[0] - reach[-1]).max() < 1e-5


def test_eval_generate_speed_and_show(typed, models):
    llama, text = f"hf:{models / 'llama'}", models / "text.txt"
    status, output, _ = typed("eval", llama, "--corpus", text, "--format", "json")
    (record,) = json.loads(output)
    assert (status, record["tokens"]) == (0, len(TEXT.encode()) - 1)
    assert (record["measurement"]["tgt_len"], record["measurement"]["stride"]) == (63, 31)
    status, one, _ = typed("generate", llama, "--prompt", "The ", "--tokens", 9, "--format", "json")
    _, other, _ = typed("generate", llama, "--prompt", "The ", "--tokens", 9, "--format", "json")
    assert (status, len(json.loads(one)["ids"])) == (0, 9)
    assert json.loads(one)["ids"] == json.loads(other)["ids"]
    mamba = f"hf:{models / 'mamba'}"
    status, output, errors = typed(
        "speed", llama, mamba, "--attention-lengths", 16, "--rounds", 2, "--out", "speed"
    )
    assert (status, "llama, reuse" in output) == (0, True), errors
    status, output, _ = typed("models", "show", mamba, "--format", "json")
    shown = json.loads(output)
    assert (status, shown["architecture"], shown["positions"]) == (0, "mamba", "without limit")
    assert "BOS 256" in shown["tokenizer"]
    assert "attention lengths" not in shown["asks"]
    _, output, _ = typed("models", "show", llama, "--format", "json")
    assert "attention lengths and sinks" in json.loads(output)["asks"]


def copied(models, tmp_path):
    return shutil.copytree(models / "llama", tmp_path / "model")


def with_remote_code(folder):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "auto_map": {"AutoModelForCausalLM": "own.Model"}}))


def with_pickle(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def with_lossy_tokenizer(folder):
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(folder)


def without_a_weight(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    weights.pop("model.norm.weight")
    save_file(weights, path, metadata={"format": "pt"})


def with_a_weight_more(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path) | {"vision.proj": torch.ones(2)}
    save_file(weights, path, metadata={"format": "pt"})


def with_layers_beyond(folder):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))


def cut_off(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def with_other_sizes(folder):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "intermediate_size": 64}))


def with_too_few_heads(folder):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_attention_heads": 3}))


def without_a_number(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["lm_head.weight"][3] = torch.nan
    save_file(weights, path, metadata={"format": "pt"})


def that_looks_ahead(folder):
    save_encoder(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (with_other_sizes, "such as model.layers.0.mlp.down_proj.weight: [32, 48] found, [32, 64]"),
        (with_too_few_heads, "not a multiple of the number of attention heads (3)"),
        (without_a_number, "its losses are no numbers (NaN)"),
        (that_looks_ahead, "with what comes after the token"),
        (with_remote_code, "names code of its own, which is never run"),
        (with_pickle, "a pickle can run code"),
        (without_tokenizer, "no tokenizer"),
        (with_lossy_tokenizer, "does not give the text back"),
        (without_a_weight, "1 of its weights are missing, such as model.norm.weight"),
        (with_layers_beyond, "layers that config.json does not have, such as model.layers.1."),
        (cut_off, "transformers cannot read it"),
    ],
)
@pytest.mark.parametrize("verb", ["recl", "eval"])
def test_a_model_that_cannot_be_had_is_one_line(damage, said, verb, typed, models, tmp_path):
    folder = copied(models, tmp_path)
    damage(folder)
    given = (
        ("--models", f"hf:{folder}", "--contexts", "4:8:4") if verb == "recl" else (f"hf:{folder}",)
    )
    status, _, errors = typed(verb, *given, "--corpus", models / "text.txt")
    assert status == ExitStatus.USAGE
    assert len(errors.splitlines()) == 1 or "windows to read" in errors, errors
    assert said in errors


def test_weights_that_are_not_used_are_named_once(typed, models, tmp_path):
    folder = copied(models, tmp_path)
    with_a_weight_more(folder)
    status, _, errors = typed("eval", f"hf:{folder}", "--corpus", models / "text.txt")
    assert status == 0
    said = f"Warning: hf:{folder}: a weight of its files is not used, such as vision.proj"
    assert errors.splitlines().count(said) == 1


@pytest.mark.parametrize(
    "options",
    [("eval", "--corpus", "TEXT", "--protocol", "lm-eval"), ("generate", "--prompt", "The ")],
)
def test_no_verb_takes_a_model_that_looks_ahead(options, typed, models, tmp_path):
    folder = save_encoder(tmp_path / "bert")
    options = [models / "text.txt" if each == "TEXT" else each for each in options]
    status, output, errors = typed(*options, f"hf:{folder}")
    assert (status, output, len(errors.splitlines())) == (ExitStatus.USAGE, "", 1), errors
    assert "with what comes after the token" in errors


def test_sampling_is_as_asked_whatever_the_folder_says(typed, models, tmp_path):
    folder = copied(models, tmp_path)
    asked = ("--prompt", "The ", "--tokens", 20, "--top-k", 1, "--format", "json")
    _, plain, _ = typed("generate", f"hf:{folder}", *asked)
    said = {"repetition_penalty": 9.0, "do_sample": False, "num_beams": 3, "eos_token_id": 257}
    (folder / "generation_config.json").write_text(json.dumps(said))
    status, output, errors = typed("generate", f"hf:{folder}", *asked)
    assert (status, json.loads(output)["ids"]) == (0, json.loads(plain)["ids"]), errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eval", "smollm"), "txlbench models list"),
        (
            ("recl", "--models", "LLAMA", "--contexts", "32:64:32"),
            "context 64 is beyond its positions",
        ),
        (("eval", "LLAMA", "--tgt-len", "100"), "context 100 is beyond its positions"),
        (
            ("recl", "--models", "MAMBA", "--contexts", "4:8:4", "--attention-length", "4"),
            "no mask decides what mamba sees",
        ),
        (
            ("recl", "--models", "LLAMA", "--contexts", "4:8:4", "--sinks", "4"),
            "give --attention-length too",
        ),
        (("eval", "LLAMA", "--mem-len", "8"), "--mem-len"),
        (("generate", "LLAMA", "--prompt", "a", "--tokens", "70"), "beyond its 63 positions"),
        (("speed", "LLAMA", "--attention-lengths", "64"), "beyond its positions"),
        (("eval", "hf:no/such-model"), "pass their folder as hf:DIR"),
        (("eval", "gguf:missing.gguf"), "no such file"),
        (("eval", "gguf:TEXT"), "not a GGUF file"),
        (("eval", "smollm2-135m"), "txlbench models prepare smollm2-135m"),
        (("models", "prepare", "smollm"), "smollm2-135m"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments, said, typed, models, tmp_path, monkeypatch):
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    text = models / "text.txt"
    given = [
        word.replace("LLAMA", f"hf:{models / 'llama'}")
        .replace("MAMBA", f"hf:{models / 'mamba'}")
        .replace("TEXT", str(text))
        for word in arguments
    ]
    corpus = ("--corpus", text) if arguments[0] in ("recl", "eval") else ()
    status, _, errors = typed(*given, *corpus)
    assert (status, len(errors.splitlines())) == (ExitStatus.USAGE, 1), errors
    assert said in errors


def test_a_missing_extra_is_one_line(typed, models, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    status, _, errors = typed("eval", f"hf:{models / 'llama'}", "--corpus", models / "text.txt")
    assert (status, "pip install 'txlbench[hf]'" in errors) == (ExitStatus.USAGE, True)

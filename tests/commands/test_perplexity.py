"""`eval --protocol`: what lm-eval, llama.cpp and the guide of transformers would print."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.commands.test_same_bytes import LLAMA, bpe, our_run
from tests.models.pretrained.architectures import save_model
from txlbench.commands.evaluate import EvalRequest, evaluate
from txlbench.commands.model_ref import resolve
from txlbench.commands.perplexity import default_window, perplexities
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError

ROOT = Path(__file__).parents[2]
TEXT = "".join(f"Zeile {i}: naïve 😀 the end\nпривет {'ab' * (i % 5)}\n" for i in range(24))  # noqa: RUF001
EVERY = ("stride:5", "lm-eval", "llama.cpp", "hf-guide")


@pytest.fixture
def models(folder):
    """A run of ours and a Llama; the text to score lies in text.txt."""
    LOADED.clear()
    run = our_run()
    bpe(save_model("llama", Path("llama")))
    Path("text.txt").write_bytes(TEXT.encode())
    return str(run.path), LLAMA


def results(model, protocols=EVERY, window=None, **changes):
    request = EvalRequest(model, device="cpu", **{"corpus": "text.txt", **changes})
    return {each.protocol: each for each in perplexities(request, protocols, window)}


LOADED = {}
"""Networks by reference, of one test."""


def token_losses(model, stream):
    """Losses of a window of tokens that are read as they are, BOS included."""
    if model not in LOADED:
        ours = model != LLAMA
        LOADED[model] = (
            resolve(model).load(torch.device("cpu")).model
            if ours
            else AutoModelForCausalLM.from_pretrained("llama").eval()
        )
    network, tokens_BT = LOADED[model], torch.tensor(stream)[None]
    with torch.no_grad():
        if model == LLAMA:
            log_probs = network(tokens_BT).logits[0, :-1].log_softmax(1)
        else:
            state = network.initial_state(1, AttentionSpan(mem_len=0))
            log_probs = network.log_probs(network(tokens_BT[:, :-1], state)[0][0])
        return -log_probs.gather(1, tokens_BT[0, 1:, None])[:, 0].numpy()


def stream_of(model):
    tokenizer = resolve(model).tokenizer()
    ids = tokenizer.encode(TEXT)[0].tolist()
    return ids if tokenizer.bos is None else [tokenizer.bos, *ids]


def guide(model, stream, window, stride):
    """The loop of the guide: a mean a window, times one less than its new tokens."""
    total, counted, end_before = 0.0, 0, 0
    for begin in range(0, len(stream), stride):
        end = min(begin + window, len(stream))
        new = end - end_before
        total += token_losses(model, stream[begin:end])[-new:].mean() * (new - 1)
        counted += new - 1
        end_before = end
        if end == len(stream):
            break
    return math.exp(total / counted)


@pytest.mark.parametrize("number", [0, 1], ids=["ours", "llama"])
def test_each_protocol_gives_what_its_program_would(models, number):
    model, stream = models[number], stream_of(models[number])
    window, ref = 16, resolve(models[number])
    found = results(model, window=window)
    assert found["hf-guide"].numbers["perplexity"] == pytest.approx(
        guide(model, stream, window, window // 2), rel=1e-4
    )
    bos, halves = ref.tokenizer().bos, []
    for start in range(0, len(stream) - window + 1, window):
        piece = stream[start : start + window]
        piece[0] = piece[0] if bos is None else bos
        halves += token_losses(model, piece)[window // 2 :].tolist()
    llama_cpp = found["llama.cpp"]
    assert llama_cpp.tokens == len(halves) == len(stream) // window * (window // 2 - 1)
    assert llama_cpp.numbers["perplexity"] == pytest.approx(math.exp(np.mean(halves)), rel=1e-4)
    error = np.std(halves, ddof=1) / math.sqrt(len(halves))
    assert llama_cpp.numbers["uncertainty"] == pytest.approx(
        error * math.exp(np.mean(halves)), rel=1e-3
    )
    prefixed = [ref.tokenizer().prefix, *stream]
    total = 0.0
    for end in [*range(window, len(stream), window), len(stream)]:
        begin = max(0, end - window)
        new = end - (end - 1) // window * window
        total += token_losses(model, prefixed[begin : end + 1])[-new:].sum()
    size = len(TEXT.encode())
    assert found["lm-eval"].numbers["byte_perplexity"] == pytest.approx(
        math.exp(total / size), rel=1e-4
    )
    assert found["lm-eval"].numbers["bits_per_byte"] == pytest.approx(
        total / size / math.log(2), rel=1e-4
    )
    assert found["stride:5"].tokens == len(stream) - 1
    assert len({round(each.loss, 6) for each in found.values()}) == len(EVERY)
    assert all(each.how and each.mean_context < window for each in found.values())


def test_windows_default_to_the_models_reach(models):
    ours, llama = map(resolve, models)
    assert default_window(ours) == 16
    assert default_window(llama) == 64
    assert results(models[1], ("lm-eval", "llama.cpp"))["llama.cpp"].window == 64


def test_ours_is_the_number_of_eval(models):
    for model, corpus in zip(models, (None, "text.txt"), strict=True):
        request = EvalRequest(model, corpus=corpus, device="cpu")
        (found,) = perplexities(request, ("ours",), None)
        (row,) = evaluate(request)
        assert found.loss == row.score.loss
        assert "as eval without --protocol" in found.how


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocols": ("lm_eval",)}, "--protocol lm_eval: not one; choose among ours, stride:N"),
        ({"protocols": ("stride:0",)}, "--protocol stride:0: not one"),
        ({"protocols": ("stride:N",)}, "--protocol stride:N: not one"),
        ({"protocols": ("stride:99",)}, "the stride is beyond the window of 64"),
        ({"window": 65}, "--window 65: is beyond what hf:llama can read; give at most 64"),
        ({"mem_len": 4}, "--protocol and --mem-len exclude each other"),
        ({"corpus": "short.txt", "protocols": ("llama.cpp",)}, "wants two windows of 64"),
    ],
)
def test_what_no_program_would_do_is_refused(models, changes, words):
    Path("short.txt").write_text("a few words only, but enough for three splits of a corpus")
    with pytest.raises(UserError, match=words):
        results(models[1], **changes)


TASK = """
task: local_text
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{page}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""


def lm_eval(module, *words):
    """The results of a real call of lm-eval on the local task."""
    Path("tasks").mkdir(exist_ok=True)
    Path("data.jsonl").write_text(json.dumps({"page": TEXT}) + "\n")
    Path("tasks/task.yaml").write_text(TASK.replace("DATA", str(Path("data.jsonl").resolve())))
    offline = {
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(Path("hf").resolve()),
    }
    command = [
        sys.executable, "-m", module, "run", *words, "--tasks",
        "local_text", "--include_path", "tasks", "--output_path", "out", "--device", "cpu",
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, **offline, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = Path("out").rglob("results_*.json")
    content = json.loads(path.read_text())["results"]["local_text"]
    path.unlink()
    return {name.removesuffix(",none"): value for name, value in content.items()}


@pytest.mark.full
def test_lm_eval_itself_prints_these_numbers(models):
    calls = {
        models[0]: [
            "txlbench.commands.lm_eval_model",
            "--model=txlbench",
            f"--model_args=model={models[0]}",
        ],
        models[1]: ["lm_eval", "--model=hf", "--model_args=pretrained=llama,dtype=float32"],
    }
    for model, words in calls.items():
        printed, numbers = lm_eval(*words), results(model, ("lm-eval",))["lm-eval"].numbers
        for name, value in numbers.items():
            assert printed[name] == pytest.approx(value, rel=1e-4), (model, name)


@pytest.mark.full
def test_a_model_answers_lm_evals_other_questions(models):
    from lm_eval.api.instance import Instance

    from txlbench.commands.lm_eval_model import LmEvalModel

    def ask(kind, model, *arguments):
        given = [Instance(kind, {}, each, 0) for each in arguments]
        return getattr(model, kind)(given)

    for name in models:
        model = LmEvalModel(name, device="cpu")
        pairs = [("the ", "end"), ("", "the end")]
        (first, _), (second, _) = ask("loglikelihood", model, *pairs)
        ids = stream_of_text(name, "the end")
        losses = token_losses(name, ids)
        assert first == pytest.approx(
            -losses[-len(stream_of_text(name, " end", False)) :].sum(), abs=1e-3
        )
        assert second < 0
        (answer,) = ask("generate_until", model, ("the ", {"until": [], "max_gen_toks": 5}))
        assert answer
        ((_, likely),) = ask("loglikelihood", model, ("the ", answer))
        assert likely or name == LLAMA  # whose tokens of the whole may be cut elsewhere
        stop = answer[1]
        (cut,) = ask("generate_until", model, ("the ", {"until": [stop], "max_gen_toks": 5}))
        assert cut == answer.split(stop)[0]


@pytest.mark.full
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_lm_evals_default_device_needs_no_gpu(models):
    from txlbench.commands.lm_eval_model import LmEvalModel

    assert LmEvalModel(models[1], device="cuda:0").eot_token_id >= 0


def stream_of_text(model, text, begin=True):
    tokenizer = resolve(model).tokenizer()
    ids = tokenizer.encode(text)[0].tolist()
    return ids if tokenizer.bos is None or not begin else [tokenizer.bos, *ids]


def test_wrong_input_of_lm_eval_is_one_line(folder):
    command = [sys.executable, "-m", "txlbench.commands.lm_eval_model", "run"]
    words = ["--model", "txlbench", "--model_args", "model=none", "--tasks", "x"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    blocked = "import sys; sys.modules['lm_eval'] = None; import runpy; runpy.run_module("
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}{command[2]!r}, run_name='__main__')", *words],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == "Error: lm-eval is not installed; pip install 'txlbench[lm-eval]'"

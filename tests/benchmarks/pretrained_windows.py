"""Context losses of pretrained models beside their plain forward pass, by turns in one process.

python -m tests.benchmarks.pretrained_windows [MODEL ...] [--length N] [--precisions fp32,bf16]
[--threads N] [--rounds N]. MODEL is what `txlbench context` takes, or llama or mamba: four layers
of width 256 with random weights. The forward pass is transformers' own, of as many windows at once
as suits it best, with the logits of one token each; context losses come with all that they need,
the logits of every 64th token too. Prints a Markdown table: tokens read a second, and the ratios of
single rounds, median and quartiles.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from txlbench.commands.model_ref import resolve
from txlbench.evaluation.context_losses import PartialLosses, context_losses
from txlbench.models.pretrained.causal_lm import CausalModel

CPU = torch.device("cpu")
STEP = 64
WINDOWS = 16
BATCHES = (1, 2, 4, 8, 16)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WIDTH = {"hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 8192}
HEADER = (
    "| model | precision | plain tokens/s (windows at once) | context losses tokens/s | of it |"
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["llama", "mamba"])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    print(HEADER, "|---|---|---:|---:|---:|", sep="\n")
    for name in options.models:
        for precision in options.precisions.split(","):
            model, vocabulary = load(name, precision)
            print(row(name, precision, model, vocabulary, options), flush=True)


def load(name, precision):
    """The model and the size of its vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

    made = {
        "llama": lambda: LlamaForCausalLM(
            LlamaConfig(intermediate_size=704, num_attention_heads=4, **WIDTH)
        ),
        "mamba": lambda: MambaForCausalLM(MambaConfig(**WIDTH)),
    }
    if name not in made:
        ref = resolve(name)
        return ref.load(CPU, precision).model, ref.capabilities.vocabulary_size
    torch.manual_seed(1)
    return CausalModel(made[name]().to(DTYPES[precision]).eval()), WIDTH["vocab_size"]


def row(name, precision, model, vocabulary, options):
    length = options.length
    ids = np.random.default_rng(1).integers(vocabulary, size=length + STEP * WINDOWS + 1)
    works = {batch: plain(model, ids, batch, length) for batch in BATCHES}
    best = max(works, key=lambda batch: max(speed(works[batch]) for _ in range(2)))
    ours = contexts(model, ids, vocabulary, length)
    speed(ours)
    speeds = [(speed(works[best]), speed(ours)) for _ in range(options.rounds)]
    plain_speed, own_speed = (statistics.median(each) for each in zip(*speeds, strict=True))
    low, middle, high = statistics.quantiles([own / plain for plain, own in speeds], n=4)
    ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    return f"| {name} | {precision} | {plain_speed:,.0f} ({best}) | {own_speed:,.0f} | {ratio} |"


def plain(model, ids, batch, length):
    """Reads windows, a batch at once."""
    starts = STEP * np.arange(batch)[:, None]
    tokens_BT = torch.from_numpy(ids[starts + np.arange(length)])
    options = {"logits_to_keep": 1} if model.picks_logits else {}

    def run():
        for _ in range(max(1, WINDOWS // 2 // batch)):
            model.network(input_ids=tokens_BT, use_cache=False, **options)
        return max(1, WINDOWS // 2 // batch) * tokens_BT.numel()

    return run


def contexts(model, ids, vocabulary, length):
    """Computes losses at every STEP-th context of as many positions as there are windows."""
    chosen = np.arange(STEP, length + 1, STEP)
    reader = model.at(chosen - 1)
    counted = Counting(reader)
    positions = length + STEP * np.arange(WINDOWS)
    at_once = reader.windows_at_once(length, vocabulary, CPU)

    def run():
        counted.read.clear()
        with tempfile.TemporaryDirectory() as folder, PartialLosses(Path(folder) / "part") as kept:
            context_losses(
                counted,
                ids,
                chosen,
                positions,
                kept,
                at_once=at_once,
                device=CPU,
                progress=lambda *_: None,
            )
        return sum(counted.read)

    return run


class Counting:
    """A model that counts the tokens it reads."""

    def __init__(self, reader):
        self.reader, self.read = reader, []

    def token_losses(self, tokens_BT):
        self.read.append(tokens_BT[:, 1:].numel())
        return self.reader.token_losses(tokens_BT)


def speed(run):
    """Tokens a second."""
    begin = time.perf_counter()
    tokens = run()
    return tokens / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()

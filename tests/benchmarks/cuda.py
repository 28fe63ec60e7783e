"""What a CUDA device does: equality of its paths with the plain one, then speed and utilisation.

python -m tests.benchmarks.cuda [--device cuda] [--rounds N] [--sizes small,base]. Prints the
largest differences of losses and gradients between FlexAttention and the plain path, then tokens
a second of training in each number format, compiled and not, with model FLOPs utilisation: the
necessary FLOPs over those of the device's own matrix products, measured in the same rounds; then
the table of `txlbench bench`.
"""

import argparse
import statistics
import subprocess
import sys

import torch

from tests.benchmarks import training, training_ours
from txlbench.commands.bench_worker import DTYPES, SQUARE, by_turns, matrix_product
from txlbench.config.base import AttentionSpan
from txlbench.config.benchmarks import SIZES, VOCABULARY
from txlbench.config.counting import token_flops
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model
from txlbench.training.runtime import autocast

ENCODINGS = {
    "xl": {},
    "shaw": {"max_distance": 200},
    "shaw, biases": {"max_distance": 200, "shaw_bias": True},
    "absolute": {},
}
TOLERANCES = {"fp32": 1e-3, "bf16": 6e-2}
FORMATS = [("fp32", False), ("tf32", False), ("bf16", False), ("bf16", True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="small,base")
    options = parser.parse_args()
    device = torch.device(options.device)
    for name, settings in ENCODINGS.items():
        for precision in TOLERANCES:
            check_equality(name, settings, precision, device)
    print("| training | tokens/s | quartiles | utilisation |", "|---|---:|---:|---:|", sep="\n")
    for size in options.sizes.split(","):
        for precision, compiled in FORMATS:
            print(speed(size, precision, compiled, device, options.rounds), flush=True)
    command = [sys.executable, "-m", "txlbench.cli.main", "bench", "--sizes", options.sizes]
    subprocess.run([*command, "--device", options.device, "--out", "/tmp/bench-cuda"], check=True)


def check_equality(name, settings, precision, device):
    """Loss and gradients of a segment with a full memory, one stream of which forgot it."""
    torch.manual_seed(1)
    encoding = name.partition(",")[0]
    sizes = {"n_layer": 2, "d_model": 64, "n_head": 4, "d_head": 32, "d_inner": 128}
    config = ModelConfig(encoding=encoding, dropout=0.0, **sizes, **settings)
    model = build_model(config, 50).to(device).train()
    tokens = torch.randint(50, (4, 201), device=device)

    def trained(observer):
        state = model.initial_state(4, AttentionSpan(mem_len=100))
        with autocast(precision, device):
            _, state = model(tokens[:, :100], state)
            state = state.reset(torch.arange(4) == 2)
            hidden, _ = model(tokens[:, 100:200], state, observer)
            loss = model.losses(hidden, tokens[:, 101:]).mean()
        used = [weight for weight in model.parameters() if weight.numel()]
        return loss, *torch.autograd.grad(loss, used, allow_unused=True)

    plain, fast = trained(lambda *_: None), trained(None)
    pairs = [pair for pair in zip(plain, fast, strict=True) if pair[0] is not None]
    worst = max(
        float((one - other).abs().max() / one.abs().max().clamp(min=1e-3)) for one, other in pairs
    )
    print(f"{name}, {precision}: largest relative difference {worst:.1e}", flush=True)
    assert worst < TOLERANCES[precision], f"{name} in {precision} is not the plain path"


def speed(size, precision, compiled, device, rounds):
    """A line of the table; two repetitions warm up and compile."""
    workload = training.workload(size, precision)
    tokens = workload["batch"] * workload["length"] * workload["steps"]
    del workload["work"]
    run = training_ours.train(**workload, device=device, compiled=compiled)
    product = matrix_product(DTYPES.get(precision, torch.float32), device)
    run(), run()
    seconds, products = by_turns(run, product, rounds, device)
    rates = sorted(tokens / each for each in seconds)
    low, median, high = statistics.quantiles(rates, n=4)
    chosen = SIZES[size]
    flops = 3 * token_flops(chosen.model, VOCABULARY, chosen.tgt_len, chosen.tgt_len, cached=False)
    share = flops * median / (2 * SQUARE**3 / statistics.median(products))
    name = f"{size}, {precision}{', compiled' if compiled else ''}"
    return f"| {name} | {median:,.0f} | {low:,.0f} to {high:,.0f} | {share:.0%} |"


if __name__ == "__main__":
    main()

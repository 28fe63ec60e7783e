"""All that decides on a CUDA device, in one call of under ten minutes.

python -m tests.benchmarks.cuda [--device cuda] [--minutes 9] [--rounds N] [--sizes NAME,...].
Prints, in this order and until the minutes are over: the device and its rates of matrix products;
fused attention held against the plain path, of every encoding; attention alone beside PyTorch's
kernel without positions, forward and backward; training steps in each number format, with model
FLOPs utilisation (necessary FLOPs a second over the device's own products of that minute, and
over its data sheet's peak), memory beside the formula's, and the same steps with PyTorch's kernel
in place of attention with positions, as the roof; the places of a step that wait for the device;
then the table of `txlbench bench`. Sizes: small, base and large. With --device cpu it is a
rehearsal at toy sizes.
"""

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial
from unittest import mock

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from txlbench.commands import check_device
from txlbench.commands.bench_worker import DTYPES, SQUARE, by_turns, matrix_product, timed
from txlbench.commands.check_device import check_kernels
from txlbench.config.accelerators import ACCELERATORS
from txlbench.config.benchmarks import SIZES, Size
from txlbench.config.counting import train_flops
from txlbench.config.memory_use import training_memory
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import RunConfig
from txlbench.models import attention
from txlbench.models.kernels.cuda import PositionDropout, flexible_attention
from txlbench.models.mask import Mask
from txlbench.models.positions.encoding import ScoreTerms
from txlbench.models.positions.tables import DistanceTable
from txlbench.records.schema import AttentionFacts
from txlbench.runs.speed_probe import ProbeJob
from txlbench.runs.speed_probe_worker import SyntheticBatches, training_state
from txlbench.training import loop
from txlbench.training.runtime import products, staged

LARGE = {
    "model": {"n_layer": 18, "d_model": 1024, "n_head": 16, "d_head": 64, "d_inner": 4096}
    | {"dropout": 0.2, "dropatt": 0.2, "cutoffs": [20000, 40000, 200000], "div_val": 4},
    "train": {"tgt_len": 384, "mem_len": 384, "batch_size": 32},
    "vocabulary": 267_735,
}
"""The paper's largest model of words (Table 1), in the sizes of the official script."""
TOY = {
    "model": {"n_layer": 2, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 32}
    | {"dropatt": 0.2, "cutoffs": [20, 40], "div_val": 2},
    "train": {"tgt_len": 8, "mem_len": 8, "batch_size": 4},
    "vocabulary": 60,
}
FORMATS = (("fp32", False), ("tf32", False), ("bf16", False), ("bf16", True))
HEADS, HEAD, BATCH = 16, 64, 8
LENGTHS = ((512, 512), (512, 2048), (1024, 3072))
"""Queries and memory of attention alone."""


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="small,base,large")
    options = parser.parse_args(arguments)
    device, end = torch.device(options.device), time.monotonic() + 60 * options.minutes
    sizes = ["toy"] if device.type == "cpu" else options.sizes.split(",")
    sections = [
        partial(describe, device),
        partial(equality, device),
        partial(attention_alone, device, options.rounds),
        *(partial(training, size, device, options.rounds, end) for size in sizes),
        partial(waits, sizes[-1], device),
    ]
    with rehearsed() if device.type == "cpu" else nullcontext():
        for section in sections:
            for line in section():
                print(line, flush=True)
                if time.monotonic() > end:
                    print("The minutes are over; the rest is left out.")
                    return
    if device.type == "cuda":
        command = [sys.executable, "-m", "txlbench", "bench", "--device", options.device]
        left = max(1.0, end - time.monotonic())
        subprocess.run([*command, "--out", "/tmp/bench-cuda"], timeout=left, check=False)


@contextmanager
def rehearsed():
    """Inside, models are small, and PyTorch lets FlexAttention have gradients on a CPU."""
    toy = Size(ModelConfig(**{**TOY["model"], "cutoffs": (), "dropatt": 0.0}), 8, 4)
    with (
        mock.patch("torch.nn.attention.flex_attention._validate_device"),
        mock.patch.dict(check_device.SIZES, small=toy),
    ):
        yield


def describe(device):
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        yield f"{found.name}, {found.total_memory / 1e9:.0f} GB, PyTorch {torch.__version__}"
    for name in ("fp32", "tf32", "bf16"):
        yield f"matrix products, {name}: {rate_of(name, device) / 1e12:,.1f} TFLOP/s"


def rate_of(name, device, repeats=5):
    """The device's own FLOP/s, the median of some products."""
    with products(name):
        multiply = matrix_product(DTYPES.get(name, torch.float32), device)
        seconds = statistics.median(timed(multiply, device) for _ in range(repeats))
    return 2 * SQUARE**3 / seconds


def equality(device):
    yield "\n| fused attention | format | path | difference | allowed | seconds |"
    yield "|---|---|---|---:|---:|---:|"
    for each in check_kernels([], device):
        found = each.attention
        numbers = [found.difference or 0, found.allowed or 0]
        shown = " | ".join(f"{number:.1e}" for number in numbers)
        name = f"{each.labels[0]} | {each.precision} | {found.path}"
        yield f"| {name} | {shown} | {found.seconds:.1f} | {found.reason or ''}"


def attention_alone(device, rounds):
    """Milliseconds of forward and backward pass, of one layer, in bf16."""
    yield "\n| attention alone, queries + memory | ms | with dropout | without positions (SDPA) |"
    yield "|---|---:|---:|---:|"
    lengths, dtype = (LENGTHS, torch.bfloat16)
    if device.type == "cpu":
        lengths, dtype = ((8, 8),), torch.float32
    for queries, memory in lengths:
        keys = queries + memory
        batch, heads = (BATCH, HEADS) if device.type == "cuda" else (2, 2)

        def leaf(*shape):
            return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()

        query, context = leaf(batch, queries, heads, HEAD), leaf(batch, keys, 2, heads, HEAD)
        table = DistanceTable(leaf(heads, HEAD, keys + 1))
        terms = ScoreTerms(leaf(heads, HEAD), leaf(heads, HEAD), table)
        like = query.new_empty(0)
        mask = Mask(queries=queries, keys=keys, attention_length=None, valid_len_B=None, like=like)
        dropout = PositionDropout.draw(batch, heads, keys, 0.1, device)
        given = (query, context, terms, mask)
        ways = [
            lambda given=given: flexible_attention(*given),
            lambda given=given, dropout=dropout: flexible_attention(*given, dropout=dropout),
            lambda given=given: without_positions(*given),
        ]
        cells = []
        for way in ways:
            passes = partial(forward_and_backward, way)
            passes(), passes()
            seconds = sorted(timed(passes, device) for _ in range(rounds))
            cells.append(f"{1000 * statistics.median(seconds):.2f}")
        yield f"| {queries} + {memory} | {' | '.join(cells)} |"


def forward_and_backward(way):
    way().float().sum().backward()


def without_positions(query_BTHK, context_BS2HK, terms, mask, dropout=None):
    """What PyTorch's own kernel does with the same queries, keys and values."""
    key, value = context_BS2HK.permute(2, 0, 3, 1, 4)
    bias = causal_lower_right(mask.queries, mask.keys)
    mixed = scaled_dot_product_attention(query_BTHK.transpose(1, 2), key, value, attn_mask=bias)
    return mixed.transpose(1, 2)


def config_of(size, precision, compiled):
    """A run's configuration, and its vocabulary's size."""
    chosen = {"large": LARGE, "toy": TOY}.get(size)
    if chosen is None:
        known = SIZES[size]
        train = {"tgt_len": known.tgt_len, "mem_len": known.tgt_len, "batch_size": known.batch_size}
        chosen = {"model": known.model.model_dump(), "train": train, "vocabulary": 205}
    own = {"precision": precision, "compile": compiled, "max_step": 1000}
    raw = {"corpus": "enwiki-sample", "model": chosen["model"], "train": chosen["train"] | own}
    return RunConfig.model_validate(raw), chosen["vocabulary"]


def training(size, device, rounds, end):
    yield (
        f"\n| training, {size} | path | tokens/s | quartiles | of products | of peak "
        "| memory, by formula | with SDPA, no positions |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    formats = FORMATS if device.type == "cuda" else FORMATS[:1]
    for precision, compiled in formats:
        if time.monotonic() < end:
            yield speed(size, precision, compiled, device, rounds)


def speed(size, precision, compiled, device, rounds):
    """A line of the table; two steps warm up and compile."""
    config, vocabulary = config_of(size, precision, compiled)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    step, path = steps(config, vocabulary, device)
    with products(precision):
        product = matrix_product(DTYPES.get(precision, torch.float32), device)
        step(), step()
        seconds, others = by_turns(step, product, rounds, device)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    with mock.patch.object(attention, "flexible_attention", without_positions):
        roof, _ = steps(config, vocabulary, device, settled=False)
        with products(precision):
            roof(), roof()
            roofs = [timed(roof, device) for _ in range(rounds)]
    tokens = config.train.batch_size * config.train.tgt_len
    rates = [tokens / each for each in seconds]
    low, median, high = statistics.quantiles(rates, n=4)
    flops = train_flops(config, vocabulary) / config.train.max_step / tokens * median
    own = flops / (2 * SQUARE**3 / statistics.median(others))
    expected = training_memory(config, vocabulary, precision, "cuda").total
    times = median / (tokens / statistics.median(roofs))
    return (
        f"| {precision}{', compiled' if compiled else ''} | {path} | {median:,.0f} "
        f"| {low:,.0f} to {high:,.0f} | {own:.0%} | {of_peak(flops, precision, device)} "
        f"| {peak / 2**20:,.0f}, {expected / 2**20:,.0f} MiB | {times:.2f} |"
    )


def of_peak(flops, precision, device):
    """The share of the data sheet's rate, if the device's name is one of those known."""
    if device.type != "cuda":
        return "-"
    name = torch.cuda.get_device_name(device).lower()
    known = [each for each in ACCELERATORS.values() if each.name.split("-")[0] in name]
    return f"{flops / known[0].rate(precision)[1]:.0%}" if known else "-"


def steps(config, vocabulary, device, settled=True):
    """A function that takes a step with a full memory, and the path that attention takes.

    Args:
        settled: after the self-test; else as if it had passed.
    """
    job = ProbeJob(config=config, vocabulary_size=vocabulary, device=str(device))
    passed = mock.patch("txlbench.training.self_test.compare_attention", as_if_passed)
    if settled:
        state, settings = training_state(job, device)
    else:
        with passed:
            state, settings = training_state(job, device)
    state.model.train()
    layer = state.model.blocks[0].attention
    on_host = state.model.reads_host_ids
    with staged(SyntheticBatches(job), device, on_host) as batches:
        batch = batches[1]
    return partial(loop._step, state, batch, settings), layer.path(device.type, True)


def as_if_passed(*_):
    return AttentionFacts(path="flex")


def waits(size, device):
    """The lines of a step that wait for the device; one is needed, for loss and gradient."""
    config, vocabulary = config_of(size, "bf16" if device.type == "cuda" else "fp32", False)
    step, _ = steps(config, vocabulary, device)
    step(), step()
    if device.type != "cuda":
        yield "\nwaits of a step: only a CUDA device tells"
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = Counter(f"{each.filename}:{each.lineno}" for each in said)
    yield f"\nwaits of a step of {size}: {sum(places.values())} (one is needed)"
    for place, count in places.most_common():
        yield f"  {count} x {place}"


if __name__ == "__main__":
    main()

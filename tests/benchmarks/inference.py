"""Streaming evaluation and generation beside transformers' TransfoXL of the same weights.

python -m tests.benchmarks.inference REFERENCE_PYTHON [--rounds N] [--threads N]. The reference has
an environment of its own; it runs once as it comes and once with the allocator settings that the
suite gives its own processes. Prints tokens a second and both median ratios, with the quartiles
of single rounds.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.turns import Side, environments, take_turns

SMALL = {"n_layer": 4, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024}
VOCABULARY = 205
EVALUATION = {"work": "evaluate", "batch": 10, "length": 64, "mem_len": 640, "segments": 3}
GENERATION = [
    {"work": "generate", "mem_len": 800, "tokens": 40},
    {"work": "generate", "mem_len": 3800, "tokens": 24},
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference_python")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["seconds", "cpu"], default="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model")
        sides = open_sides(options.reference_python, f"{folder}/model", options.threads)
        for name, workloads in workloads_of_a_run():
            turn = take_turns(
                list(zip(sides, workloads, strict=True)), options.rounds, options.clock
            )
            print(line(name, turn, tokens_of(workloads[0])), flush=True)
        for side in sides:
            side.close()


def write_model(directory, shape=SMALL):
    """Random weights in a folder that both sides load."""
    import torch

    from txlbench.config.model import ModelConfig
    from txlbench.models.convert.hf import write_hf
    from txlbench.models.convert.official import Converted
    from txlbench.models.factory import build_model

    torch.manual_seed(1)
    config = ModelConfig(encoding="xl", dropout=0.0, **shape)
    model = build_model(config, VOCABULARY)
    converted = Converted(config, VOCABULARY, dict(model.state_dict()), mem_len=640, tgt_len=64)
    write_hf(converted, directory)


def open_sides(reference_python, model, threads):
    ours, plain = environments(threads, evaluates=True)
    reference = [reference_python, "-m", "tests.benchmarks.inference_reference", model]
    return [
        Side("suite", [sys.executable, "-m", "tests.benchmarks.inference_ours", model], ours),
        Side("reference", reference, plain),
        Side("reference, allocator set", reference, ours),
    ]


def workloads_of_a_run():
    """A name, and what each side does."""
    plain = {**EVALUATION, "dtype": "fp32"}
    yield "evaluation, fp32", [plain] * 3
    yield "evaluation, bf16", [{**EVALUATION, "dtype": "bf16"}, plain, plain]
    for work in GENERATION:
        yield f"generation, M = {work['mem_len']:,}", [work] * 3


def tokens_of(work):
    return work.get("tokens") or work["batch"] * work["length"] * work["segments"]


def line(name, turn, tokens):
    ours, *references = turn.seconds
    parts = [f"{name}:"]
    for side in turn.seconds:
        parts.append(f"{side} {tokens / statistics.median(turn.seconds[side]):,.0f} tokens/s,")
    for reference in references:
        low, high = turn.spread(ours, reference)
        parts.append(
            f"{turn.ratio(ours, reference):.2f}x ({low:.2f} to {high:.2f}) of {reference},"
        )
    values = ", ".join(f"{value:.6f}" for value in turn.values.values())
    return " ".join([*parts, f"values {values}"])


if __name__ == "__main__":
    main()

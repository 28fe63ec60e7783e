"""Streaming evaluation beside its toughest competitors, by turns: batch 10, 64 tokens, memory 640.

python -m tests.benchmarks.streaming RIVALS_PYTHON [--sizes small,base] [--rounds N] [--threads N].
RIVALS_PYTHON has x-transformers, openvino and this torch in an environment of its own. Sides:

    ours             the KV cache of `Transformer.evaluation_state`
    x-transformers   the same job by fewer terms: rotary positions, SDPA, a memory of hidden states
    plain, openvino  our plain function, [B, T] tokens and N x [B, M, D] memory to losses and memory
    plain, compiled  the same by torch.compile, frozen weights
    cached, ...      both again, of a function of keys and values instead: what ours computes

All but x-transformers must agree on the mean loss to 1e-4. Prints a Markdown table: tokens a
second, and the ratios of single rounds, median and quartiles.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.turns import Side, environments, take_turns
from txlbench.config.benchmarks import SIZES, VOCABULARY

WORK = {"batch": 10, "length": 64, "mem_len": 640}
SEGMENTS = {"small": 4, "base": 1}
"""Read in one turn of each model."""
TOLERANCE = 1e-4
RIVALS = (
    "x-transformers",
    "plain, openvino",
    "plain, compiled",
    "cached, openvino",
    "cached, compiled",
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rivals_python")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rivals", default=";".join(RIVALS), help="parted by semicolons")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    rivals = options.rivals.split(";")
    print("| model | side | tokens/s | ours over it | loss |", "|---|---|---:|---:|---:|", sep="\n")
    for size in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            write_model(model, size)
            sides = open_sides(options.rivals_python, str(model), size, rivals, options.threads)
            turn = take_turns(sides, options.rounds)
            for side, _ in sides:
                side.close()
        for line in rows(size, turn):
            print(line, flush=True)
        check_equality(turn.values)


def write_model(directory, size):
    """Random weights in a folder that all sides of our model load."""
    import torch

    from txlbench.models.convert.hf import write_hf
    from txlbench.models.convert.official import Converted
    from txlbench.models.factory import build_model

    torch.manual_seed(1)
    config = SIZES[size].model
    model = build_model(config, VOCABULARY)
    converted = Converted(config, VOCABULARY, dict(model.state_dict()), mem_len=640, tgt_len=64)
    write_hf(converted, directory)


def open_sides(rivals_python, model, size, rivals, threads):
    """Each side with its work; the processes of all have the same settings of memory."""
    environment, _ = environments(threads, evaluates=True)
    ours = [sys.executable, "-m", "tests.benchmarks.inference_ours", model]
    compiled = [sys.executable, "-m", "tests.benchmarks.streaming_plain", model]
    others = [rivals_python, "-m", "tests.benchmarks.streaming_rivals", model, size]
    work = {**WORK, "segments": SEGMENTS[size]}
    sides = [(Side("ours", ours, environment), {"work": "evaluate", "dtype": "fp32", **work})]
    for name in rivals:
        kind, _, tool = name.partition(", ")
        command = compiled if tool == "compiled" else others
        if tool == "openvino":
            export(Side("export", compiled, environment), kind)
        asked = {"work": tool or "x_transformers", "kind": kind, **work}
        sides.append((Side(name, command, environment), asked))
    return sides


def export(side, kind):
    side.ask({"work": "export", "kind": kind, **WORK})
    side.close()


def rows(size, turn):
    tokens = WORK["batch"] * WORK["length"] * SEGMENTS[size]
    for side, seconds in turn.seconds.items():
        speed = f"{tokens / statistics.median(seconds):,.0f}"
        low, high = turn.spread("ours", side)
        ratio = (
            "" if side == "ours" else f"{turn.ratio('ours', side):.2f} ({low:.2f} to {high:.2f})"
        )
        yield f"| {size} | {side} | {speed} | {ratio} | {turn.values[side]:.5f} |"


def check_equality(values):
    for side, value in values.items():
        same_function = side != "x-transformers"
        if same_function and abs(value - values["ours"]) > TOLERANCE:
            raise SystemExit(f"{side}: loss {value:.6f}, ours {values['ours']:.6f}")


if __name__ == "__main__":
    main()

"""Generation beside llama.cpp at equal shape and cache format, and beside a copy of memory.

python -m tests.benchmarks.generation LLAMA_PYTHON [--threads N] [--rounds N] [--memories A,B].
LLAMA_PYTHON has an environment of its own, with `pip install llama-cpp-python gguf`, which compiles
llama.cpp. All sides take turns, and so does a copy of 256 MB (STREAM's: bytes read and written).

A new token reads all weights and the keys and values of its memory, once each: as bytes a second
that is comparable between models whose weights differ, here a Transformer-XL and a Llama. Ours
keeps its weights in float32, and draws each token too; llama.cpp is given it.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.inference import write_model
from tests.benchmarks.turns import Side, environments, take_turns

SHAPE = {"n_layer": 4, "d_model": 256, "n_head": 8, "d_head": 32, "d_inner": 1024}
INNER = 688
"""Of the Llama's three matrices, which then have as many weights as our two."""
FORMATS = {"fp32": 4, "bf16": 2, "fp16": 2}
COPIED = 256 * 2**20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("llama_python")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--memories", default="800,3800")
    options = parser.parse_args()
    environment, _ = environments(options.threads, evaluates=True)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        write_model(model, SHAPE)
        command = [sys.executable, "-m", "tests.benchmarks.inference_ours", str(model)]
        ours = [Side(dtype, command, environment) for dtype in FORMATS]
        script = "tests.benchmarks.generation_llama"
        command = [options.llama_python, "-m", script, folder, str(options.threads)]
        theirs = [Side(f"llama.cpp {dtype}", command, environment) for dtype in FORMATS]
        copy = Side("copy", ours[0].command, environment)
        print(streams_line(ours[0], options), flush=True)
        for mem_len in map(int, options.memories.split(",")):
            turn = take_turns(
                [
                    *((side, workload(side, mem_len, options.tokens)) for side in ours + theirs),
                    (copy, {"work": "copy", "size": COPIED}),
                ],
                options.rounds,
            )
            print(f"memory {mem_len:,}, threads {options.threads}:")
            for line in lines(turn, mem_len, options.tokens):
                print(line, flush=True)
        for side in (*ours, *theirs, copy):
            side.close()


def workload(side, mem_len, tokens, **more):
    dtype = side.name.split()[-1]
    return {"work": "generate", "mem_len": mem_len, "tokens": tokens, "dtype": dtype, **more}


def streams_line(side, options):
    """Eight streams at a memory of a segment, beside one: tokens a second of all together."""
    one, eight = (workload(side, 128, options.tokens, streams=count) for count in (1, 8))
    side.ask(one), side.ask(eight)
    ratios = [
        8 * side.ask(one)["seconds"] / side.ask(eight)["seconds"] for _ in range(options.rounds)
    ]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"8 streams, memory 128: {middle:.2f}x ({low:.2f} to {high:.2f}) the tokens/s of one"


def lines(turn, mem_len, tokens):
    """For each format tokens and bytes a second of both, and the ratio of the latter."""
    for dtype in FORMATS:
        ours, theirs = dtype, f"llama.cpp {dtype}"
        bytes_ours, bytes_theirs = (bytes_a_token(mem_len, dtype, llama) for llama in (False, True))
        scale = bytes_ours / bytes_theirs
        low, high = turn.spread(ours, theirs)
        yield (
            f"  {dtype}: {told(turn, ours, tokens, bytes_ours)}; "
            f"llama.cpp {told(turn, theirs, tokens, bytes_theirs)}; "
            f"bytes a second {scale * turn.ratio(ours, theirs):.2f}x "
            f"({scale * low:.2f} to {scale * high:.2f}), "
            f"tokens a second {turn.ratio(ours, theirs):.2f}x"
        )
    yield f"  copy: {2 * COPIED / statistics.median(turn.seconds['copy']) / 1e9:.1f} GB/s"


def told(turn, side, tokens, count):
    speed = tokens / statistics.median(turn.seconds[side])
    return f"{speed:,.0f} tokens/s, {speed * count / 1e9:.1f} GB/s"


def bytes_a_token(mem_len, dtype, llama):
    """The weights but for the embedding, which is one row, and the keys and values."""
    layers, width, inner = SHAPE["n_layer"], SHAPE["d_model"], SHAPE["d_inner"]
    # Ours projects the distances too, and its softmax reads the embedding.
    layer = 4 * width**2 + 3 * width * INNER if llama else 5 * width**2 + 2 * width * inner
    weights = 205 * width + layers * layer
    of_weight = FORMATS[dtype] if llama else 4
    return of_weight * weights + FORMATS[dtype] * 2 * layers * width * mem_len


if __name__ == "__main__":
    main()

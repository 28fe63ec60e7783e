"""The whole table: this suite beside transformers' TransfoXL, in one call.

python -m tests.benchmarks.against_reference REFERENCE_PYTHON [--rounds N] [--threads N]
[--dtypes fp32,bf16]. The reference, transformers 4.35.2, has an environment of its own. It runs
once as it comes and once with the allocator settings that the suite gives its processes; all sides
take turns. Prints a Markdown table: median and quartiles of the ratios of single rounds.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from tests.benchmarks import contexts, inference, training
from tests.benchmarks.turns import Side, environments, take_turns
from txlbench.config.benchmarks import SIZES

TARGETS = {
    "training small, fp32": 2.0,
    "training small, bf16": 5.0,
    "training base, fp32": 2.5,
    "training base, bf16": 8.0,
    "evaluation, fp32": 4.0,
    "evaluation, bf16": 8.0,
    "generation, M = 800": 20.0,
    "generation, M = 3,800": 40.0,
    "ten contexts beside one evaluation each": 6.0,
}
HEADER = (
    "| work | tokens/s | x reference | x reference, allocator set | aim | peak MB (reference) |"
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference_python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", default="fp32,bf16")
    options = parser.parse_args()
    print(HEADER, "|---|---:|---:|---:|---:|---:|", sep="\n", flush=True)
    for rows in (of_training, of_inference, of_contexts):
        for row in rows(options):
            print(f"| {' | '.join(row)} |", flush=True)


def of_training(options):
    ours, plain = environments(options.threads)
    reference = [options.reference_python, *training.REFERENCE]
    for size in SIZES:
        dtypes = options.dtypes.split(",")
        sides = [
            *((Side(each, training.OURS, ours), training.workload(size, each)) for each in dtypes),
            (Side("as it comes", reference, plain), training.workload(size, "fp32")),
            (Side("allocator set", reference, ours), training.workload(size, "fp32")),
        ]
        turn = take_turns(sides, options.rounds)
        sizes = training.SIZES[size]
        tokens = sizes["batch"] * sizes["length"] * sizes["steps"]
        peaks = [side.ask({"work": "peak_memory"})["value"] / 2**20 for side, _ in sides]
        for number, dtype in enumerate(dtypes):
            name = f"training {size}, {dtype}"
            memory = f"{peaks[number]:,.0f} ({peaks[-2]:,.0f})"
            yield row(name, turn, dtype, ("as it comes", "allocator set"), tokens, memory)
        for side, _ in sides:
            side.close()


def of_inference(options):
    with tempfile.TemporaryDirectory() as folder:
        inference.write_model(Path(folder) / "model")
        sides = inference.open_sides(options.reference_python, f"{folder}/model", options.threads)
        for name, workloads in inference.workloads_of_a_run():
            if name.startswith("evaluation") and name[-4:] not in options.dtypes:
                continue
            turn = take_turns(list(zip(sides, workloads, strict=True)), options.rounds)
            ours, *references = turn.seconds
            yield row(name, turn, ours, references, inference.tokens_of(workloads[0]), "")
        for side in sides:
            side.close()


def of_contexts(options):
    turn = contexts.measure(options.rounds, options.threads)
    name = "ten contexts beside one evaluation each"
    yield row(name, turn, "one pass", ("one a context",), contexts.POSITIONS, "")


def row(name, turn, ours, references, tokens, memory):
    ratios = [ratio(turn, ours, reference) for reference in references]
    speed = f"{tokens / statistics.median(turn.seconds[ours]):,.0f}"
    return [name, speed, *ratios, *[""] * (2 - len(ratios)), f"{TARGETS[name]:g}", memory]


def ratio(turn, side, reference):
    low, high = turn.spread(side, reference)
    return f"{turn.ratio(side, reference):.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()

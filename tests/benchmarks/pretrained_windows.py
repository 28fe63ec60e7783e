"""Tokens a second of windows of a pretrained model: cores side by side against cores together.

python tests/benchmarks/pretrained_windows.py MODEL [LENGTH] [fp32|bf16]
"""

import sys
import time

import numpy as np
import torch

from txlbench.commands.model_ref import resolve
from txlbench.evaluation.context_losses import side_by_side

CPU = torch.device("cpu")


def main(reference: str, length: str = "1024", precision: str = "fp32") -> None:
    cores, tokens = torch.get_num_threads(), int(length)
    ref = resolve(reference)
    model = ref.load(CPU, precision).model.at(np.arange(63, tokens, 64))
    ids = torch.randint(ref.capabilities.vocabulary_size, (4, tokens + 1))
    for name, threads, rows, parallel in (
        ("1 thread, 1 window", 1, 1, False),
        (f"{cores} threads together, 1 window", cores, 1, False),
        (f"{cores} threads together, 2 windows", cores, 2, False),
        (f"{cores} side by side, 1 window each", cores, 1, True),
        (f"{cores} side by side, 2 windows each", cores, 2, True),
    ):
        torch.set_num_threads(threads)
        parts = [ids[:rows]] * (2 * cores)
        model.token_losses(ids[:rows])
        begin = time.perf_counter()
        found = (
            side_by_side(model.token_losses, parts, CPU)
            if parallel
            else map(model.token_losses, parts[:2])
        )
        read = sum(rows * tokens for _ in found)
        print(f"{name:36} {read / (time.perf_counter() - begin):8,.0f} tokens/s")


if __name__ == "__main__":
    main(*sys.argv[1:])

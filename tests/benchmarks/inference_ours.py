"""The suite's side of `inference`: python -m tests.benchmarks.inference_ours DIR."""

import sys
from contextlib import nullcontext

import torch

from tests.benchmarks.answering import answer
from txlbench.commands.model_ref import resolve
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.generation import Sampling
from txlbench.evaluation.scoring import zero_memory


def main():
    torch.set_grad_enabled(False)
    model = resolve(f"hf:{sys.argv[1]}").load(torch.device("cpu")).model

    def full_state(batch, mem_len, dtype):
        """A memory of zeros, as the reference begins."""
        with precision(dtype):
            return model.evaluation_state(zero_memory(model, batch, AttentionSpan(mem_len=mem_len)))

    def evaluate(batch, length, mem_len, segments, dtype):
        tokens = random_tokens(batch, length * segments + 1)
        state = full_state(batch, mem_len, dtype)

        def run():
            nonlocal state
            total = 0.0
            with precision(dtype):
                for start in range(0, length * segments, length):
                    hidden, state = model(tokens[:, start : start + length], state)
                    targets = tokens[:, start + 1 : start + length + 1]
                    total += float(model.losses(hidden, targets).mean())
            return total / segments

        return run

    def generate(mem_len, tokens, dtype="fp32", streams=1):
        generators = [torch.Generator().manual_seed(seed) for seed in range(streams)]
        token = random_tokens(streams, 1)
        if dtype != "fp32":
            model.keep_in(dtype)
        state, sampling = full_state(streams, mem_len, "fp32"), Sampling(top_k=40)

        @torch.inference_mode()
        def run():
            nonlocal state, token
            for _ in range(tokens):
                hidden, state = model(token, state)
                log_probs = model.log_probs(hidden[:, -1])
                token = sampling.draw(log_probs, generators)
            return float(log_probs.max())

        return run

    def copy(size):
        source = torch.ones(size // 4)
        target = torch.empty_like(source)

        def run():
            return float(target.copy_(source)[0])

        return run

    answer({"evaluate": evaluate, "generate": generate, "copy": copy})


def precision(dtype):
    return torch.autocast("cpu", torch.bfloat16) if dtype == "bf16" else nullcontext()


def random_tokens(batch, length):
    return torch.randint(205, (batch, length), generator=torch.Generator().manual_seed(3))


if __name__ == "__main__":
    main()

"""Our plain function for compilers: python -m tests.benchmarks.streaming_plain DIR.

A segment's losses and the next memory as a function of tensors alone; `export` writes it into the
model's folder, for OpenVINO, and `compiled` times it under torch.compile.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch._inductor import config as inductor

from tests.benchmarks.answering import answer
from tests.benchmarks.inference_ours import random_tokens
from txlbench.commands.model_ref import resolve
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.scoring import zero_memory
from txlbench.models.kv_cache import KVCache


class Plain(nn.Module):
    """Of hidden states, whose keys and values are projected anew: [B, M, D] a layer."""

    def __init__(self, model, batch, mem_len):
        super().__init__()
        self.model, self.span = model, AttentionSpan(mem_len=mem_len)
        self.first = zero_memory(model, batch, self.span)

    def memory(self):
        return list(self.first.layers)

    def forward(self, tokens_BT, targets_BT, memory):
        named = {f"layer{n}": layer for n, layer in enumerate(memory)}
        hidden, state = self.model(tokens_BT, self.first.replace(named))
        return self.model.losses(hidden, targets_BT).mean(), list(state.layers)


class Cached(nn.Module):
    """Of keys and values, which are kept: [2, H, B, M, K] a layer."""

    def __init__(self, model, batch, mem_len):
        super().__init__()
        self.model, self.span = model, AttentionSpan(mem_len=mem_len)
        cache = model.evaluation_state(zero_memory(model, batch, self.span))
        remembered_N2HBMK = cache.states_N2HBCK[..., cache.start : cache.end, :]
        self.first = [layer.clone() for layer in remembered_N2HBMK]
        self.kept = {}

    def memory(self):
        return self.first

    def forward(self, tokens_BT, targets_BT, memory):
        length = tokens_BT.shape[1]
        states_N2HBCK = nn.functional.pad(torch.stack(memory), (0, 0, 0, length))
        cache = KVCache(states_N2HBCK, self.span, end=self.span.mem_len, kept=self.kept)
        hidden, cache = self.model(tokens_BT, cache)
        layers = cache.states_N2HBCK[..., length:, :].unbind()
        return self.model.losses(hidden, targets_BT).mean(), [layer.clone() for layer in layers]


KINDS = {"plain": Plain, "cached": Cached}


def main():
    torch.set_grad_enabled(False)
    directory = Path(sys.argv[1])
    model = resolve(f"hf:{directory}").load(torch.device("cpu")).model

    def function(kind, batch, length, mem_len):
        """A function and its memory; what it keeps between calls is there before it is traced."""
        made, tokens = KINDS[kind](model, batch, mem_len), random_tokens(batch, length)
        made(tokens, tokens, made.memory())
        return made

    def export(kind, batch, length, mem_len):
        made = function(kind, batch, length, mem_len)
        tokens, targets = (random_tokens(batch, length).clone() for _ in range(2))
        program = torch.export.export(made, (tokens, targets, made.memory()), strict=False)
        torch.export.save(program, directory / f"{kind}.pt2")
        return lambda: 0.0

    def compiled(kind, batch, length, mem_len, segments):
        inductor.freezing = True
        made = function(kind, batch, length, mem_len)
        step, memory = torch.compile(made, dynamic=False), made.memory()
        tokens = random_tokens(batch, length * segments + 1)

        def run():
            nonlocal memory
            total = 0.0
            for start in range(0, length * segments, length):
                read, targets = (tokens[:, start + n : start + n + length] for n in (0, 1))
                loss, memory = step(read.contiguous(), targets.contiguous(), memory)
                total += float(loss)
            return total / segments

        return run

    answer({"export": export, "compiled": compiled})


if __name__ == "__main__":
    main()

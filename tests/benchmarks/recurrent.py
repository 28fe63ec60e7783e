"""How fast recurrent kinds train: beside Transformer-XL, and LSTM and QRNN beside `torch.nn.LSTM`.

python -m tests.benchmarks.recurrent [--rounds N] [--threads N] [--dtype fp32|bf16].

Beside Transformer-XL of the same 4 x 256 each kind has a process with the suite's settings, which
takes whole training steps by turns; the ratio of tokens a second is that of single rounds, as
median and quartiles. Beside PyTorch's LSTM all are in one process, with an embedding, two layers, a
tied softmax and Adam, and take turns step by step.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from tests.benchmarks.training import OURS, SIZES, ratio, workload
from tests.benchmarks.turns import Side, environments, take_turns
from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model

WIDTH, LAYERS, VOCABULARY, BATCH, LENGTH = 512, 2, 5000, 32, 64


class Reference(nn.Module):
    """The model that PyTorch's tutorials build."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def step_loss(self, tokens, targets, state):
        hidden, state = self.lstm(self.embedding(tokens), state)
        logits = linear(hidden, self.embedding.weight, self.bias)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        return loss, tuple(part.detach() for part in state)


class Ours:
    """One of the suite's recurrent models."""

    def __init__(self, kind):
        config = ModelConfig(kind=kind, n_layer=LAYERS, d_model=WIDTH, dropout=0.0)
        self.model = build_model(config, VOCABULARY)
        self.parameters = self.model.parameters

    def step_loss(self, tokens, targets, state):
        state = state or self.model.initial_state(BATCH, AttentionSpan(mem_len=1))
        hidden, state = self.model(tokens, state)
        return self.model.losses(hidden, targets).mean(), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    options = parser.parse_args()
    beside_transformer_xl(options)
    beside_pytorch(options.rounds)


def beside_transformer_xl(options):
    """The suite's own training step, with full memory and carried state."""
    environment, _ = environments(options.threads)
    sizes, kinds = SIZES["small"], ("transformer", "lstm", "qrnn", "gla", "gated-delta")
    sides = [
        (Side(kind, OURS, environment), workload("small", options.dtype, kind=kind))
        for kind in kinds
    ]
    turn = take_turns(sides, options.rounds)
    tokens = sizes["batch"] * sizes["length"] * sizes["steps"]
    print(f"4 layers of 256, {options.dtype}, {options.threads} thread(s)")
    for side, _ in sides:
        speed = tokens / statistics.median(turn.seconds[side.name])
        print(f"{side.name:14} {speed:8,.0f} tokens/s, {ratio(turn, side.name, 'transformer')}")
        side.close()


def beside_pytorch(rounds):
    torch.manual_seed(1)
    models = {"torch.nn.LSTM": Reference(), "lstm": Ours("lstm"), "qrnn": Ours("qrnn")}
    optimisers = {name: torch.optim.Adam(m.parameters(), fused=True) for name, m in models.items()}
    states, times = dict.fromkeys(models), {name: [] for name in models}
    for step in range(rounds + 3):
        tokens, targets = torch.randint(VOCABULARY, (2, BATCH, LENGTH))
        for name, model in models.items():
            begin = time.perf_counter()
            loss, states[name] = model.step_loss(tokens, targets, states[name])
            loss.backward()
            optimisers[name].step()
            optimisers[name].zero_grad()
            if step >= 3:  # the first ones warm up
                times[name].append(time.perf_counter() - begin)
    baseline = statistics.median(times["torch.nn.LSTM"])
    print(f"{WIDTH} wide, {LAYERS} layers, batch {BATCH}, length {LENGTH}, {VOCABULARY} symbols")
    for name, seconds in times.items():
        speeds = [BATCH * LENGTH / each for each in seconds]
        ratio = baseline / statistics.median(seconds)
        print(
            f"{name:14} {statistics.median(speeds):8,.0f} tokens/s "
            f"({min(speeds):,.0f} to {max(speeds):,.0f}), {ratio:.2f} of torch.nn.LSTM"
        )


if __name__ == "__main__":
    main()

"""The reference's side of `training`: PYTHON -m tests.benchmarks.training_reference."""

import resource

import torch
from transformers import TransfoXLConfig, TransfoXLLMHeadModel

from tests.benchmarks.answering import answer


def main():
    answer({"train": train, "peak_memory": lambda: peak_memory})


def train(model, vocabulary, batch, length, steps, dtype):
    """Steps of the official training: loss, clipping at 0.25, Adam; memory is full at once."""
    assert dtype == "fp32"
    torch.manual_seed(1)
    network = TransfoXLLMHeadModel(configuration(model, vocabulary, length)).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=2.5e-4)
    tokens = torch.randint(vocabulary, (batch, length))
    memories = None

    def run():
        nonlocal memories
        for _ in range(steps):
            out = network(tokens, mems=memories, labels=tokens)
            memories = out.mems
            loss = out.losses.mean()
            network.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.25)
            optimiser.step()
        return loss.item()

    return run


def configuration(model, vocabulary, length):
    return TransfoXLConfig(
        vocab_size=vocabulary,
        cutoffs=[],
        d_embed=model["d_model"],
        div_val=1,
        mem_len=length,
        clamp_len=-1,
        untie_r=False,
        dropatt=0.0,
        **model,
    )


def peak_memory():
    """The largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

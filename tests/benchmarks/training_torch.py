"""The competitors' side of `training_competitors`: PYTHON -m tests.benchmarks.training_torch.

x-transformers with memory and rotary positions, and Llama of transformers, which has no memory;
both with PyTorch's scaled_dot_product_attention, and trained as `training_ours` is: mean
cross-entropy, the norm of gradients clipped at 0.25, Adam in one kernel.
"""

import resource

import torch
from torch.nn.functional import cross_entropy

from tests.benchmarks.answering import answer


def main():
    answer({"train": train, "peak_memory": lambda: peak_memory})


def train(kind, model, vocabulary, batch, length, context, steps, dtype, compiled=False):
    """Steps on a full memory.

    Args:
        context: of x-transformers, the states of its memory; of Llama, tokens before those that
            are scored, which it reads and learns from anew at every step.
    """
    torch.manual_seed(1)
    network = {"x-transformers": RecurrentXTransformer, "llama": LlamaWithContext}[kind]
    network = network(model, vocabulary, length, context).train()
    if compiled:
        network.compile(dynamic=False)
    optimiser = torch.optim.Adam(network.parameters(), lr=2.5e-4, fused=True)
    tokens = torch.randint(vocabulary, (batch, length + network.extra))
    targets = torch.randint(vocabulary, (batch, length))
    memory = None

    def step():
        nonlocal memory
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits, memory = network(tokens, memory)
            loss = cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.25)
        optimiser.step()
        optimiser.zero_grad()
        return loss.item()

    step()  # leaves a full memory

    def run():
        for _ in range(steps):
            loss = step()
        return loss

    return run


class RecurrentXTransformer(torch.nn.Module):
    """x-transformers' decoder, whose layers also attend to the last segment's states."""

    extra = 0

    def __init__(self, model, vocabulary, length, context):
        super().__init__()
        from x_transformers import Decoder, TransformerWrapper

        layers = Decoder(
            dim=model["d_model"],
            depth=model["n_layer"],
            heads=model["n_head"],
            attn_dim_head=model["d_head"],
            ff_mult=model["d_inner"] // model["d_model"],
            rotary_pos_emb=True,
            attn_flash=True,
        )
        self.network = TransformerWrapper(
            num_tokens=vocabulary,
            max_seq_len=length,
            max_mem_len=context,
            use_abs_pos_emb=False,
            attn_layers=layers,
        )

    def forward(self, tokens, memory):
        return self.network(tokens, mems=memory, return_mems=True)


class LlamaWithContext(torch.nn.Module):
    """transformers' Llama; its feed-forward layers have as many weights as two linear maps."""

    def __init__(self, model, vocabulary, length, context):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.length, self.extra = length, context
        config = LlamaConfig(
            hidden_size=model["d_model"],
            intermediate_size=model["d_inner"] * 2 // 3,
            num_hidden_layers=model["n_layer"],
            num_attention_heads=model["n_head"],
            head_dim=model["d_head"],
            vocab_size=vocabulary,
            attn_implementation="sdpa",
            use_cache=False,
        )
        self.network = LlamaForCausalLM(config)

    def forward(self, tokens, memory):
        return self.network(tokens, logits_to_keep=self.length).logits, memory


def peak_memory():
    """The largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

"""The reference's side of `inference`: PYTHON -m tests.benchmarks.inference_reference DIR."""

import sys

import torch
from transformers import TransfoXLLMHeadModel

from tests.benchmarks.answering import answer


def main():
    torch.set_grad_enabled(False)
    model = TransfoXLLMHeadModel.from_pretrained(sys.argv[1]).eval()

    def evaluate(batch, length, mem_len, segments, dtype):
        assert dtype == "fp32"
        tokens, memories = random_tokens(batch, length * segments + 1), None

        def run():
            nonlocal memories
            model.reset_memory_length(mem_len)
            total = 0.0
            for start in range(0, length * segments, length):
                out = model(tokens[:, start : start + length], mems=memories)
                memories = out.mems
                targets = tokens[:, start + 1 : start + length + 1]
                log_probs = out.prediction_scores.flatten(0, 1)
                total -= float(log_probs.gather(1, targets.reshape(-1, 1)).mean())
            return total / segments

        return run

    def generate(mem_len, tokens):
        generator, token = torch.Generator().manual_seed(1), random_tokens(1, 1)
        memories = None

        def run():
            nonlocal memories, token
            model.reset_memory_length(mem_len)
            for _ in range(tokens):
                out = model(token, mems=memories)
                memories = out.mems
                values, ids = out.prediction_scores[:, -1].topk(40)
                token = ids.gather(1, torch.multinomial(values.exp(), 1, generator=generator))
            return float(values[0, 0])

        return run

    answer({"evaluate": evaluate, "generate": generate})


def random_tokens(batch, length):
    return torch.randint(205, (batch, length), generator=torch.Generator().manual_seed(3))


if __name__ == "__main__":
    main()

"""The side of `streaming`'s competitors, in their environment: DIR SIZE."""

import sys
from pathlib import Path

import torch

from tests.benchmarks.answering import answer

SIZES = {"small": (4, 256, 4), "base": (12, 512, 8)}
"""Layers, width, heads of 64."""
VOCABULARY = 205


def main():
    torch.set_grad_enabled(False)
    answer({"x_transformers": x_transformers, "openvino": openvino})


def x_transformers(kind, batch, length, mem_len, segments):
    """Weights of its own: the losses are of another model."""
    from x_transformers import Decoder, TransformerWrapper

    depth, width, heads = SIZES[sys.argv[2]]
    layers = Decoder(
        dim=width,
        depth=depth,
        heads=heads,
        attn_dim_head=64,
        rotary_pos_emb=True,
        attn_flash=True,
    )
    model = TransformerWrapper(
        num_tokens=VOCABULARY,
        max_seq_len=length,
        max_mem_len=mem_len,
        use_abs_pos_emb=False,
        attn_layers=layers,
    ).eval()
    memory = None
    tokens = random_tokens(batch, length * segments + 1)

    def run():
        nonlocal memory
        total = 0.0
        for start in range(0, length * segments, length):
            read, targets = (tokens[:, start + n : start + n + length] for n in (0, 1))
            logits, memory = model(read, mems=memory, return_mems=True)
            total += float(
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            )
        return total / segments

    for _ in range(-(-mem_len // length) // segments + 1):
        run()  # until the memory is full
    assert memory[0].shape[1] == mem_len
    return run


def openvino(kind, batch, length, mem_len, segments):
    """Our function, exported by `streaming_plain`; it writes each memory where it is read next."""
    import openvino as ov

    program = torch.export.load(Path(sys.argv[1]) / f"{kind}.pt2")
    tokens, targets, first = program.example_inputs[0]
    shapes = [list(each.shape) for each in (tokens, targets, *first)]
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    function = ov.convert_model(program)
    function.reshape(dict(zip(function.inputs, shapes, strict=True)))
    compiled = ov.Core().compile_model(function, "CPU", settings)
    tokens = random_tokens(batch, length * segments + 1)
    memories = [[ov.Tensor(layer.numpy().copy()) for layer in first] for _ in range(2)]
    request = compiled.create_infer_request()
    turn = 0

    def run():
        nonlocal turn
        total = 0.0
        for start in range(0, length * segments, length):
            for place in (0, 1):
                part = tokens[:, start + place : start + place + length].contiguous().numpy()
                request.set_input_tensor(place, ov.Tensor(part))
            for layer, read in enumerate(memories[turn]):
                request.set_input_tensor(2 + layer, read)
                request.set_output_tensor(1 + layer, memories[1 - turn][layer])
            request.infer()
            total += float(request.get_output_tensor(0).data)
            turn = 1 - turn
        return total / segments

    return run


def random_tokens(batch, length):
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(3))


if __name__ == "__main__":
    main()

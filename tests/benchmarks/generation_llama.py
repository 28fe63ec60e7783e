"""llama.cpp's side of `generation`: PYTHON -m tests.benchmarks.generation_llama FOLDER THREADS."""

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from llama_cpp import Llama, llama_get_logits

from tests.benchmarks.answering import answer

LAYERS, WIDTH, HEADS, INNER, VOCABULARY = 4, 256, 8, 688, 205
TYPES = {
    "fp32": GGMLQuantizationType.F32,
    "fp16": GGMLQuantizationType.F16,
    "bf16": GGMLQuantizationType.BF16,
}


def main():
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])

    def generate(mem_len, tokens, dtype):
        path = folder / f"llama-{dtype}.gguf"
        if not path.exists():
            write_llama(path, dtype)
        cache = TYPES[dtype].value
        model = Llama(
            str(path),
            n_ctx=mem_len + tokens + 8,
            n_threads=threads,
            n_threads_batch=threads,
            type_k=cache,
            type_v=cache,
            verbose=False,
        )
        ids = np.random.default_rng(3).integers(VOCABULARY, size=mem_len + tokens).tolist()
        model.eval(ids[:mem_len])

        def run():
            model.n_tokens = mem_len
            for token in ids[mem_len:]:
                model.eval([token])
            return max(llama_get_logits(model.ctx)[:VOCABULARY])

        return run

    answer({"generate": generate})


def write_llama(path, dtype):
    """Random weights, norms of ones, and no vocabulary."""
    writer, source = GGUFWriter(path, "llama"), np.random.default_rng(1)
    writer.add_vocab_size(VOCABULARY)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    matrices = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
    norms = ["output_norm"]
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrices[f"blk.{layer}.{name}"] = (WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            matrices[f"blk.{layer}.{name}"] = (INNER, WIDTH)
        matrices[f"blk.{layer}.ffn_down"] = (WIDTH, INNER)
        norms += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
    for name, shape in matrices.items():
        weight = source.normal(0, 0.02, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", *stored(weight, dtype))
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored(weight, dtype):
    """The array to write, of the bytes of its format, and what it says of itself."""
    if dtype == "fp32":
        return weight, None, TYPES[dtype]
    if dtype == "fp16":
        return weight.astype(np.float16), None, TYPES[dtype]
    halves = (weight.view(np.uint32) >> 16).astype(np.uint16)
    return halves.view(np.uint8), None, TYPES[dtype]


if __name__ == "__main__":
    main()

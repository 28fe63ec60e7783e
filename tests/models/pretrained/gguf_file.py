"""A tiny Llama as a GGUF file, written with the format's own library."""

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers

from tests.models.pretrained.architectures import CONFIGS, SIZE

HEADS = {"q_proj": 4, "k_proj": 2}
PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(path, network):
    """Writes a `LlamaForCausalLM` of the sizes in `architectures`, with a token for each byte."""
    config, writer = network.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(SIZE)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = [f"<|{number}|>" for number in range(SIZE - 257)]
    tokens = [*alphabet, *special, alphabet[0] + alphabet[1]]  # the one merge
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * len(special) + [1])
    writer.add_token_merges([f"{alphabet[0]} {alphabet[1]}"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    for name, tensor in network.state_dict().items():
        writer.add_tensor(_renamed(name), _permuted(name, tensor).numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_llama():
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(CONFIGS["llama"]())
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.3)
    return network.eval()


def _renamed(name):
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    place = name.removesuffix(".weight")
    if place in ends:
        return f"{ends[place]}.weight"
    _, _, layer, part = place.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def _permuted(name, tensor):
    """Rows of queries and keys in the order of llama.cpp, which rotates neighbours."""
    heads = next((count for part, count in HEADS.items() if part in name), None)
    if heads is None:
        return tensor
    rows, columns = tensor.shape
    halves = tensor.reshape(heads, 2, rows // heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns).contiguous()

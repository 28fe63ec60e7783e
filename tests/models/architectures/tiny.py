"""Tiny configurations of architectures of transformers, as a row of an experiment has them."""

from txlbench.config.model import ModelConfig

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
HEADS = {"num_key_value_heads": 1, "head_dim": 16}

TINY = {
    "llama": {**SMALL, "num_key_value_heads": 1},
    "gpt_neox": SMALL,
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "mamba2": {
        "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "num_heads": 4, "head_dim": 16,
        "n_groups": 1, "chunk_size": 4,
    },
    "gemma2": {**SMALL, **HEADS, "sliding_window": 4, "final_logit_softcapping": 1.0},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "qwen3_next": {
        **SMALL, **HEADS, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "jamba": {
        **SMALL, "num_key_value_heads": 1, "num_experts": 2, "attn_layer_period": 2,
        "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4,
    },
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 2},
    "bert": SMALL,
}  # fmt: skip

WITH_MEMORY = ("llama", "gpt_neox", "gemma2", "mamba2", "qwen3_next")
"""Those whose memory can be carried."""


def tiny(architecture: str, **changes: object) -> ModelConfig:
    """The `model` section of a row."""
    config = {**TINY[architecture], **changes}
    return ModelConfig(kind="hf", architecture=architecture, config=config)

"""Tiny models of transformers with random weights, saved as a user has them."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BloomConfig,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    JambaConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen3NextConfig,
)

SIZE = 264
"""256 bytes and a few special tokens."""
SMALL = {
    "vocab_size": SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 256, "eos_token_id": 257,
}  # fmt: skip

CONFIGS = {
    "llama": lambda: LlamaConfig(**SMALL),
    "gpt2": lambda: GPT2Config(
        vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=256,
        eos_token_id=257,
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**SMALL),
    "gemma2": lambda: Gemma2Config(
        **SMALL, head_dim=8, sliding_window=8, query_pre_attn_scalar=8, final_logit_softcapping=1.0
    ),
    "mamba": lambda: MambaConfig(
        vocab_size=SIZE, hidden_size=32, num_hidden_layers=2, state_size=8, pad_token_id=None,
        bos_token_id=256, eos_token_id=257,
    ),
    "qwen3_next": lambda: Qwen3NextConfig(
        **SMALL, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=16, shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    ),
    "jamba": lambda: JambaConfig(
        **SMALL, attn_layer_period=2, attn_layer_offset=1, num_experts=2, num_experts_per_tok=1,
        expert_layer_period=2, expert_layer_offset=1, use_mamba_kernels=False, mamba_d_state=8,
        mamba_dt_rank=4,
    ),
    "mistral": lambda: MistralConfig(**SMALL, sliding_window=8),
    "cohere": lambda: CohereConfig(**SMALL, logit_scale=0.3),
    "granite": lambda: GraniteConfig(**SMALL, logits_scaling=2.0),
    "bloom": lambda: BloomConfig(
        vocab_size=SIZE, hidden_size=32, n_layer=2, n_head=4, bos_token_id=256, eos_token_id=257
    ),
}  # fmt: skip


def byte_tokenizer(bos: bool = False) -> PreTrainedTokenizerFast:
    """A token for each byte; `<s>` before every text if asked for."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    if bos:
        made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 256)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def save_encoder(folder: Path) -> Path:
    """Saves a model that sees what comes later: BERT as it is."""
    torch.manual_seed(1)
    sizes = {key: SMALL[key] for key in SMALL if key != "num_key_value_heads"}
    network = AutoModelForCausalLM.from_config(BertConfig(**sizes))
    for weight in network.parameters():
        if weight.dim() >= 2:
            torch.nn.init.normal_(weight, 0, 0.3)
    network.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def save_model(kind: str, folder: Path, bos: bool = False, seed: int = 1, **changes) -> Path:
    """Saves a model of random weights, large enough that predictions differ, and a tokenizer."""
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    for key, value in changes.items():
        setattr(config, key, value)
    network = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() >= 2 and "conv" not in name and "A_log" not in name:
                weight.normal_(0, 0.3)
    network.save_pretrained(folder)
    byte_tokenizer(bos).save_pretrained(folder)
    return folder

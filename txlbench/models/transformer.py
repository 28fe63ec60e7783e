"""The transformer that all experiments share: embedding, layers with memory, softmax.

The four models that the paper compares differ only in the encoding and in the attention span.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import ENCODINGS, load_class
from txlbench.config.model import ModelConfig
from txlbench.config.plugins import naming_plugin
from txlbench.errors import UserError
from txlbench.models.attention import Attention, Scoring
from txlbench.models.compressive import Compressor
from txlbench.models.dropout import dropout_for
from txlbench.models.embedding import Embedding
from txlbench.models.interface import (
    DTYPE_NAMES,
    LanguageModel,
    Observer,
    autocast_dtype,
    multiplies_bf16,
)
from txlbench.models.kv_cache import KVCache, forward_cached, kv_cache_of
from txlbench.models.mask import Mask
from txlbench.models.memory import Kept, Memory, carried, with_memory
from txlbench.models.positions.encoding import Encoding
from txlbench.models.softmax import AdaptiveSoftmax


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between; dropout inside and outside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.inner_size)
        self.outer = nn.Linear(config.inner_size, config.d_model)
        self.dropout_inner = dropout_for(config)
        self.dropout_outer = dropout_for(config)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        # Rows, not streams: a map of [B, T, D] gives a span, and to write into a span costs
        # copies in its gradient.
        inner_NF = self.inner(hidden_BTD.flatten(0, 1))
        inner_BTF = self.dropout_inner.after_relu(inner_NF, hidden_BTD.shape[:2])
        out: Tensor = self.dropout_outer(self.outer(inner_BTF))
        return out


class Block(nn.Module):
    """One layer; `pre_lnorm` normalises before each part, keys and values with the queries.

    The official code normalises keys and values but not the queries there (erratum E20).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_lnorm = config.pre_lnorm
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention_dropout = dropout_for(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def forward(
        self, input_BTD: Tensor, stored_BTD: Tensor, context_BSD: Tensor, scoring: Scoring
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the layer's output [B, T, D] and, if watched, its attention [H, B, T, S].

        Args:
            stored_BTD: the input as `cast_for_memory` makes it.
            context_BSD: the same behind the memory.
        """
        if self.pre_lnorm:
            context_BSD = self.pre_norm(context_BSD)
            stored_BTD = context_BSD[:, -input_BTD.shape[1] :]
        mixed_BTD, attention = self.attention(stored_BTD, context_BSD, scoring)
        return self.after_attention(input_BTD, mixed_BTD), attention

    def cast_for_memory(self, input_BTD: Tensor) -> Tensor:
        """The layer input as stored in memory: cast to the autocast dtype.

        Not so under pre-LN, where it is normalised again on reuse.
        """
        return input_BTD if self.pre_lnorm else input_BTD.to(autocast_dtype(input_BTD))

    def pre_norm(self, hidden_BLD: Tensor) -> Tensor:
        """The input of queries, keys and values: normalised under pre-LN, else as it is."""
        return self.attention_norm(hidden_BLD) if self.pre_lnorm else hidden_BLD

    def after_attention(self, input_BTD: Tensor, mixed_BTD: Tensor) -> Tensor:
        """The layer's output [B, T, D] from its input and what attention made of it."""
        hidden_BTD = input_BTD + self.attention_dropout(mixed_BTD)
        if self.pre_lnorm:
            return hidden_BTD + self.feed_forward(self.feed_forward_norm(hidden_BTD))
        hidden_BTD = self.attention_norm(hidden_BTD)
        return self.feed_forward_norm(hidden_BTD + self.feed_forward(hidden_BTD))


def _encoding(config: ModelConfig) -> Encoding:
    """The encoding by its name; UserError for a plug-in's that cannot be made."""
    entry = ENCODINGS[config.encoding]
    with naming_plugin(entry.target, entry.source):
        encoding = load_class(entry.target)(config)
        if not isinstance(encoding, Encoding):
            raise TypeError(f"not a subclass of {Encoding.__module__}.Encoding")
    return encoding


class Transformer(LanguageModel):
    """A causal transformer over segments (paper section 3; interface: `LanguageModel`)."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, vocabulary_size)
        self.encoding = _encoding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.dropout_input = dropout_for(config)
        self.dropout_output = dropout_for(config)
        self.softmax = AdaptiveSoftmax(config, self.embedding)
        self.compressor = Compressor(config) if config.memory == "compressive" else None

    @property
    def reads_host_ids(self) -> bool:
        """See `LanguageModel.reads_host_ids`."""
        return self.embedding.counts_tokens

    def initial_state(self, batch_size: int, span: AttentionSpan) -> Memory:
        """Empty memory: not zeros, which the official TensorFlow code attends to (E18)."""
        like, blocks = self.embedding.tables[0], cast("Any", self.blocks)
        empty = blocks[0].cast_for_memory(like.new_empty(batch_size, 0, self.config.d_model))
        layers = (empty,) * self.config.n_layer
        return Memory(layers, span, compressed=layers if self.compressor is not None else ())

    def evaluation_state(self, state: Memory) -> Memory | KVCache:
        """The KV cache of what `state` remembers; `forward` appends to it.

        Where keys of a token change or move within memory there is none: of shifted or compressed
        states, and beside sinks.
        """
        if self._keeps_keys and not state.span.sinks:
            with self._products():
                return kv_cache_of(self, state)
        if self.kept_dtype is not None:
            raise UserError("--precision: keys move within memory beside sinks", "drop the option")
        return state

    @property
    def _keeps_keys(self) -> bool:
        return self.config.memory in ("xl", "sinks")

    def keep_in(self, precision: str) -> None:
        """See `LanguageModel.keep_in`."""
        if not self._keeps_keys:
            super().keep_in(precision)
        self.kept_dtype = {name: dtype for dtype, name in DTYPE_NAMES.items()}[precision]

    def _products(self, queries: int = 0) -> AbstractContextManager[object]:
        """Autocast to the format of keys and values, where the device multiplies in it.

        Not for a single query: to cast the weights would take longer than to read them.
        """
        kept, device = self.kept_dtype, self.embedding.tables[0].device
        own = kept is not None and multiplies_bf16(device)
        own = own and (kept == torch.bfloat16 or device.type != "cpu")
        return torch.autocast(device.type, kept) if own and queries != 1 else nullcontext()

    def attention_path(self, state: Any) -> str | None:
        """`sdpa` beside a KV cache, by PyTorch's kernel; else one of `AttentionPath`."""
        blocks: Any = self.blocks
        has_terms = self.encoding.has_terms
        if isinstance(state, KVCache):
            return "sdpa" if has_terms else "plain"
        path: str = blocks[0].attention.path(self.embedding.tables[0].device.type, has_terms)
        return path

    def memory_loss(self, state: Any) -> Tensor | None:
        """What the compressor of a compressive memory learns by."""
        return state.loss if isinstance(state, Memory) else None

    def forward(
        self, tokens_BT: Tensor, state: Memory | KVCache, observer: Observer | None = None
    ) -> tuple[Tensor, Memory | KVCache]:
        """See `LanguageModel.forward`."""
        if isinstance(state, KVCache):
            with self._products(tokens_BT.shape[1]):
                return forward_cached(self, tokens_BT, state, observer)
        queries, span = tokens_BT.shape[1], state.span
        like = self.embedding.tables[0]
        keys, valid = state.seen(0).shape[1] + queries, state.valid_len_B
        mask = Mask(
            queries=queries,
            keys=keys,
            attention_length=span.attention_length,
            valid_len_B=None if valid is None else valid.clamp(max=keys - queries),
            like=like,
            sinks=span.sinks,
        )
        shared = self.encoding.prepare(keys, span.clamp_len, like)
        hidden_BTD = self.dropout_input(self.encoding.add_to_input(self.embedding(tokens_BT)))
        kept: list[Kept] = []
        blocks: Any = self.blocks
        for layer, block in enumerate(blocks):
            hidden_BTD = self.encoding.add_to_layer(layer, hidden_BTD)
            stored_BTD = block.cast_for_memory(hidden_BTD)
            context_BSD = with_memory(state.seen(layer), stored_BTD)
            scoring = Scoring(self.encoding, layer, span, shared, mask, observer)
            hidden_BTD, attention = block(hidden_BTD, stored_BTD, context_BSD, scoring)
            kept.append(self.remember(state, layer, context_BSD, stored_BTD, hidden_BTD))
            if observer is not None:
                observer(layer, hidden_BTD, attention)
        return self.dropout_output(hidden_BTD), state.advanced(kept, queries)

    def remember(
        self,
        state: Memory,
        layer: int,
        context_BSD: Tensor,
        stored_BTD: Tensor,
        output_BTD: Tensor,
    ) -> Kept:
        """What a layer remembers after a segment, by the kind of memory; a hook for other kinds.

        Args:
            context_BSD: what its keys were computed from; the end is `stored_BTD`, its input.
            output_BTD: the layer's output.
        """
        block: Any = self.blocks[layer]
        queries, span = stored_BTD.shape[1], state.span
        if self.compressor is not None:
            return self.compressor.remember(state, layer, block, stored_BTD)
        if self.config.memory == "shift":
            output_BTD = block.cast_for_memory(output_BTD)
            context_BSD = with_memory(state.layers[layer], output_BTD)
        elif state.visible is not None:
            context_BSD = with_memory(state.layers[layer], stored_BTD)
        return Kept(carried(context_BSD, queries, span))

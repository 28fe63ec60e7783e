"""A transformer's pass over cached keys and values, without gradient: what evaluation runs."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from txlbench.models.cache import Cache
from txlbench.models.cached_step import cached_step, can_step
from txlbench.models.computing import computing_dtype
from txlbench.models.interface import Observer, sees_attention
from txlbench.models.mask import Mask
from txlbench.models.memory import Memory
from txlbench.models.positions.encoding import Scores

if TYPE_CHECKING:  # it imports this file
    from txlbench.models.transformer import Transformer


@torch.no_grad()
def cached_pass(
    model: "Transformer", tokens_BT: Tensor, cache: Cache, observer: Observer | None = None
) -> tuple[Tensor, Cache]:
    """Hidden states [B, T, D] of a segment; its keys and values are written into `cache`.

    Equal to a pass with the `Memory` of the same tokens, up to rounding.
    """
    assert not model.training, "a cache has no dropout"
    queries, view, like = tokens_BT.shape[1], cache.view, model.embedding.tables[0]
    keys, dtype = cache.length + queries, computing_dtype(like)
    window = view.mem_len if view.same_length else None
    mask = Mask(queries, keys, window, cache.known_B, like.new_empty(0, dtype=dtype))
    shared = model.encoding.recall(cache.kept, keys, view.clamp_len, like, tokens_BT.numel())
    cache.make_room(queries, dtype)
    if observer is None and can_step(model, tokens_BT, cache, shared):
        return cached_step(model, tokens_BT, cache, shared), cache
    hidden_BTD = model.encoding.add_to_input(model.embedding(tokens_BT))
    blocks: Any = model.blocks
    for layer, block in enumerate(blocks):
        hidden_BTD = model.encoding.add_to_layer(layer, hidden_BTD)
        normed_BTD = block.normed(hidden_BTD)
        key, value = cache.write(layer, block.attention.keys_values(normed_BTD))
        scores = model.encoding.score(layer, block.attention.queries(normed_BTD), shared)
        mixed_HBTK, attention = _attend(scores, key, value, mask, sees_attention(observer))
        hidden_BTD = block.after_attention(hidden_BTD, block.attention.joined(mixed_HBTK))
        if observer is not None:
            observer(layer, hidden_BTD, attention)
    cache.advance(queries)
    return hidden_BTD, cache


@torch.no_grad()
def cache_of(model: "Transformer", memory: Memory) -> Cache:
    """The keys and values of what `memory` holds."""
    like, view = model.embedding.tables[0], memory.view
    batch, length, _ = memory.layers[0].shape
    heads, size = model.config.n_head, model.config.head_size
    dtype = computing_dtype(like)
    empty = like.new_empty(model.config.n_layer, 2, heads, batch, 0, size, dtype=dtype)
    cache = Cache(empty, view, known_B=memory.known_B)
    cache.make_room(length, dtype)
    blocks: Any = model.blocks
    for layer, block in enumerate(blocks):
        normed_BMD = block.normed(memory.layers[layer])
        cache.write(layer, block.attention.keys_values(normed_BMD))
    cache.end = length if view.mem_len else 0
    return cache


def _attend(
    scores: Scores, key_HBSK: Tensor, value_HBSK: Tensor, mask: Mask, watched: bool
) -> tuple[Tensor, Tensor | None]:
    """The mixed values [H, B, T, K] and, if it is watched, the attention [H, B, T, S]."""
    query_HBTK, added = scores.query_HBTK, _position_and_bias(scores)
    if watched:
        products = query_HBTK @ key_HBSK.mT * query_HBTK.shape[-1] ** -0.5
        attention_HBTS = mask.onto(products if added is None else products + added).softmax(-1)
        return attention_HBTS.to(value_HBSK.dtype) @ value_HBSK, attention_HBTS
    if added is None and mask.is_causal:
        return scaled_dot_product_attention(query_HBTK, key_HBSK, value_HBSK, is_causal=True), None
    added = mask.alone() if added is None else mask.onto(added).to(query_HBTK.dtype)
    return scaled_dot_product_attention(query_HBTK, key_HBSK, value_HBSK, added), None


def _position_and_bias(scores: Scores) -> Tensor | None:
    """What of the scores does not come from content, over sqrt(d_head); free to be written to."""
    added = scores.position_HBTS
    if added is not None and not scores.scaled:
        added = added * scores.query_HBTK.shape[-1] ** -0.5
    if scores.bias_HBTS is None:
        return added
    return scores.bias_HBTS.clone() if added is None else scores.bias_HBTS + added

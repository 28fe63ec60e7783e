"""The KV cache of evaluation and generation: a forward pass over cached keys and values.

`forward_cached` reads a segment: keys and values of earlier tokens were projected once and lie in
a buffer. `decode_step` reads a single new token of each stream and gives the same with little
around the products: where these are small the time goes into calls, so that each layer's tensors
are found once, nothing is masked and little is copied.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from txlbench.config.base import AttentionSpan
from txlbench.models.attention import Scoring
from txlbench.models.interface import Observer, autocast_dtype, multiplies_bf16
from txlbench.models.kernels.cached_segment import segment_attention, takes_segment
from txlbench.models.mask import Mask
from txlbench.models.memory import Memory, advance_valid_len, reset_valid_len
from txlbench.models.positions.encoding import Encoding, ScoreTerms
from txlbench.models.positions.tables import DistanceScores

if TYPE_CHECKING:
    from txlbench.models.transformer import Block, Transformer


@dataclass
class KVCache:
    """The keys and values of the newest min(mem_len, seen) tokens; consumed by `forward`.

    Keys are kept as the encoding places them, counted from the first token that was read: however
    far memory moves, none is placed twice.

    They lie side by side, oldest first, in a buffer with room for as many again: new ones are
    written behind them, and only when it is full are the remembered ones moved to its front. So
    attention reads them in order without a copy, and a move costs little a token.

    Attributes:
        states_N2HBCK: keys and values of each layer, with room for C of them.
        span: how the model looks back.
        gates_NHBC: log gates of the same tokens, where the encoding has them.
        start, end: the places of those that are remembered.
        position: of the next token.
        valid_len_B: how many of these, the newest, each stream may still see; None for all of them.
        kept: what the encoding keeps between passes, such as projected positions.
    """

    states_N2HBCK: Tensor
    span: AttentionSpan
    gates_NHBC: Tensor | None = None
    start: int = 0
    end: int = 0
    position: int = 0
    valid_len_B: Tensor | None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of tokens remembered."""
        return self.end - self.start

    def clone(self) -> "KVCache":
        """A copy that is independent of this one."""
        gates = None if self.gates_NHBC is None else self.gates_NHBC.clone()
        states = self.states_N2HBCK.clone()
        return dataclasses.replace(self, states_N2HBCK=states, gates_NHBC=gates)

    def tensors(self) -> Mapping[str, Tensor]:
        remembered = self.states_N2HBCK[..., self.start : self.end, :]
        named = {f"layer{n}": layer.permute(2, 0, 1, 3, 4) for n, layer in enumerate(remembered)}
        if self.gates_NHBC is not None:
            gates = self.gates_NHBC[..., self.start : self.end]
            named |= {f"gates{n}": layer.transpose(0, 1) for n, layer in enumerate(gates)}
        named["position"] = torch.full((self.states_N2HBCK.shape[3],), self.position)
        return named if self.valid_len_B is None else {**named, "known": self.valid_len_B}

    def replace(self, tensors: Mapping[str, Tensor]) -> "KVCache":
        places = range(len(self.states_N2HBCK))
        states = torch.stack([tensors[f"layer{n}"].permute(1, 2, 0, 3, 4) for n in places])
        gates = None
        if self.gates_NHBC is not None:
            gates = torch.stack([tensors[f"gates{n}"].transpose(0, 1) for n in places])
        return dataclasses.replace(
            self,
            states_N2HBCK=states,
            gates_NHBC=gates,
            start=0,
            end=states.shape[4],
            position=int(tensors["position"][0]),
            valid_len_B=tensors.get("known"),
        )

    def reset(self, rows_B: Tensor) -> "KVCache":
        """The same keys, hidden from those streams."""
        rows_B = rows_B.to(self.states_N2HBCK.device)
        valid_len_B = reset_valid_len(self.valid_len_B, rows_B, self.length)
        return dataclasses.replace(self, valid_len_B=valid_len_B)

    def make_room(self, queries: int, dtype: torch.dtype) -> None:
        """Makes room in the buffer for `queries` more tokens of that dtype."""
        same = self.states_N2HBCK.dtype == dtype
        if same and self.end + queries <= self.states_N2HBCK.shape[4]:
            return
        room = 2 * (self.length + queries)
        states = self.states_N2HBCK
        if not same or room > states.shape[4]:
            states = states.new_empty(*states.shape[:4], room, states.shape[5], dtype=dtype)
        # Within one buffer the two do not overlap: it has room for twice as many.
        states[..., : self.length, :] = self.states_N2HBCK[..., self.start : self.end, :]
        if self.gates_NHBC is not None:
            kept_NHBM = self.gates_NHBC[..., self.start : self.end].clone()
            self.gates_NHBC = kept_NHBM.new_empty(*kept_NHBM.shape[:3], states.shape[4])
            self.gates_NHBC[..., : self.length] = kept_NHBM
        self.states_N2HBCK, self.start, self.end = states, 0, self.length

    def write(self, layer: int, key_HBTK: Tensor, value_HBTK: Tensor) -> tuple[Tensor, Tensor]:
        """Writes a segment's keys and values; returns them behind the remembered: [H, B, S, K]."""
        if self.span.mem_len == 0:
            dtype = self.states_N2HBCK.dtype
            return key_HBTK.to(dtype), value_HBTK.to(dtype)
        states_2HBCK, behind = self.states_N2HBCK[layer], self.end + key_HBTK.shape[2]
        for part, new_HBTK in zip(states_2HBCK, (key_HBTK, value_HBTK), strict=True):
            part[:, :, self.end : behind] = new_HBTK
        key, value = states_2HBCK[:, :, :, self.start : behind]
        return key, value

    def write_gates(self, layer: int, new_HBT: Tensor | None) -> Tensor | None:
        """Writes a segment's log gates; returns their sums up to each key, [H, B, S]."""
        if new_HBT is None:
            return None
        if self.span.mem_len == 0 or self.gates_NHBC is None:
            return new_HBT.cumsum(-1)
        behind = self.end + new_HBT.shape[2]
        self.gates_NHBC[layer, :, :, self.end : behind] = new_HBT
        return self.gates_NHBC[layer, :, :, self.start : behind].cumsum(-1)

    def advance(self, queries: int) -> None:
        """Keeps the newest of what was written, as `memory.carried` does."""
        moved = queries if self.span.stride is None else min(queries, self.span.stride)
        self.position += moved
        if self.span.mem_len == 0:
            return
        self.end += moved
        self.start = max(self.start, self.end - self.span.mem_len)
        self.valid_len_B = advance_valid_len(self.valid_len_B, queries, self.span, self.length)


class DecodeView(NamedTuple):
    """What a new token meets in one layer.

    Attributes:
        new_2HBK: the place of its own key and value.
        seen_2HBSK: the keys and values that it sees, its own the last.
        table: scores distances.
    """

    new_2HBK: Tensor
    seen_2HBSK: Tensor
    table: DistanceScores | None


DecodeLayer = Callable[[Tensor, DecodeView, KVCache], Tensor]
"""One layer of `decode_step`, [B, 1, D] to [B, 1, D]."""


def decode_layer(block: "Block", encoding: Encoding, number: int) -> DecodeLayer:
    """Binds a layer's tensors; only the biases, which are small, are copied."""
    attention, heads, size = block.attention, block.attention.heads, block.attention.size
    query, key_value, out = (
        net.weight for net in (attention.q_net, attention.kv_net, attention.o_net)
    )
    turns = type(encoding).place is not Encoding.place
    none = query.new_zeros(heads, size)
    biases = [none if bias is None else bias for bias in encoding.biases(number)]
    biases_2H11K = torch.stack(biases)[:, :, None, None]
    inner, outer = (
        (net.weight, net.bias) for net in (block.feed_forward.inner, block.feed_forward.outer)
    )
    attention_norm, feed_forward_norm = (
        (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        for norm in (block.attention_norm, block.feed_forward_norm)
    )

    def attend(normed_B1D: Tensor, view: DecodeView, cache: KVCache) -> Tensor:
        (new_2HBK, seen_2HBSK, table), span, place = view, cache.span, cache.position
        batch = len(normed_B1D)
        made_B2HK = linear(normed_B1D, key_value).view(batch, 2, heads, size)
        made_2HBK = made_B2HK.permute(1, 2, 0, 3)
        new_2HBK.copy_(made_2HBK)
        query_HB1K = linear(normed_B1D, query).view(batch, heads, 1, size).transpose(0, 1)
        if turns:
            query_HB1K = encoding.place(number, query_HB1K, place, span)
            new_2HBK[0] = encoding.place(number, made_2HBK[0][:, :, None], place, span)[:, :, 0]
        key, value = seen_2HBSK
        content, position = query_HB1K + biases_2H11K
        added = None if table is None else table.position(position)[..., -key.shape[2] :]
        decay_HBS = cache.write_gates(number, encoding.log_gates(number, normed_B1D))
        if decay_HBS is not None:
            passed_HB1S = (decay_HBS[..., -1:] - decay_HBS[..., -key.shape[2] :])[:, :, None]
            added = passed_HB1S if added is None else added + passed_HB1S
        mixed_HB1K = attend_once(content, key, value, added)
        return linear(mixed_HB1K.transpose(0, 1).reshape(batch, 1, heads * size), out)

    def feed(normed_B1D: Tensor) -> Tensor:
        return linear(linear(normed_B1D, *inner).relu_(), *outer)

    def norm_last(input_B1D: Tensor, view: DecodeView, cache: KVCache) -> Tensor:
        hidden_B1D = layer_norm(attend(input_B1D, view, cache).add_(input_B1D), *attention_norm)
        return layer_norm(feed(hidden_B1D).add_(hidden_B1D), *feed_forward_norm)

    def norm_first(input_B1D: Tensor, view: DecodeView, cache: KVCache) -> Tensor:
        hidden_B1D = attend(layer_norm(input_B1D, *attention_norm), view, cache).add_(input_B1D)
        return feed(layer_norm(hidden_B1D, *feed_forward_norm)).add_(hidden_B1D)

    return norm_first if block.pre_lnorm else norm_last


def attend_once(
    query_HB1K: Tensor, key_HBSK: Tensor, value_HBSK: Tensor, added_HB1S: Tensor | None
) -> Tensor:
    """Scaled dot product attention of a single query of each stream, [H, B, 1, K].

    Keys and values of 16 bits are read as they are kept and summed in float32. Emulated bf16 was
    measured to take three times as long as float32, and twice as long as to convert it all first.
    """
    wide, kept = query_HB1K.dtype, key_HBSK.dtype
    if kept == torch.bfloat16 and not multiplies_bf16(key_HBSK.device):
        kept, key_HBSK, value_HBSK = wide, key_HBSK.to(wide), value_HBSK.to(wide)
    added = None if added_HB1S is None else added_HB1S.to(kept)
    return scaled_dot_product_attention(query_HB1K.to(kept), key_HBSK, value_HBSK, added).to(wide)


def can_decode_step(model: "Transformer", tokens_BT: Tensor, cache: KVCache) -> bool:
    """Whether `decode_step` does what `forward_cached` would."""
    like, span = model.embedding.tables[0], cache.span
    alike = cache.valid_len_B is None and span.stride is None and span.mem_len > 0
    exact = autocast_dtype(like) == like.dtype
    return tokens_BT.shape[1] == 1 and alike and exact and model.encoding.has_terms


def decode_step(
    model: "Transformer", tokens_B1: Tensor, cache: KVCache, tables: Sequence[DistanceScores | None]
) -> Tensor:
    """Reads one token of each stream, [B, 1, D]; writes its keys and values into `cache`."""
    span, encoding, behind = cache.span, model.encoding, cache.end + 1
    seen = min(cache.length + 1, span.mem_len) if span.same_length else cache.length + 1
    new_N2HBK = cache.states_N2HBCK[..., cache.end, :]
    seen_N2HBSK = cache.states_N2HBCK[..., behind - seen : behind, :]
    hidden_B1D = encoding.add_to_input(model.embedding(tokens_B1))
    for number, layer in enumerate(_layers(model, cache)):
        hidden_B1D = encoding.add_to_layer(number, hidden_B1D)
        view = DecodeView(new_N2HBK[number], seen_N2HBSK[number], tables[number])
        hidden_B1D = layer(hidden_B1D, view, cache)
    cache.advance(1)
    return hidden_B1D


def _layers(model: "Transformer", cache: KVCache) -> list[DecodeLayer]:
    """The layers, made at the first step and kept in the cache."""
    if decode_layer not in cache.kept:
        blocks: Any = model.blocks
        cache.kept[decode_layer] = [
            decode_layer(block, model.encoding, number) for number, block in enumerate(blocks)
        ]
    layers: list[DecodeLayer] = cache.kept[decode_layer]
    return layers


@torch.no_grad()
def forward_cached(
    model: "Transformer", tokens_BT: Tensor, cache: KVCache, observer: Observer | None = None
) -> tuple[Tensor, KVCache]:
    """Hidden states [B, T, D] of a segment; its keys and values are written into `cache`.

    Equal to a pass with the `Memory` of the same tokens, up to rounding.
    """
    assert not model.training, "a cache has no dropout"
    queries, span, like = tokens_BT.shape[1], cache.span, model.embedding.tables[0]
    keys, dtype = cache.length + queries, autocast_dtype(like)
    mask = Mask(
        queries=queries,
        keys=keys,
        attention_length=span.attention_length,
        valid_len_B=cache.valid_len_B,
        like=like.new_empty(0, dtype=dtype),
    )
    encoding, asked = model.encoding, (keys, span.clamp_len, like)
    shared: Any = (
        encoding.cached_tables(cache.kept, *asked, tokens_BT.numel())
        if encoding.has_terms
        else encoding.prepare(*asked)
    )
    cache.make_room(queries, model.kept_dtype or dtype)
    if observer is None and can_decode_step(model, tokens_BT, cache):
        return decode_step(model, tokens_BT, cache, shared), cache
    hidden_BTD = encoding.add_to_input(model.embedding(tokens_BT))
    blocks: Any = model.blocks
    for layer, block in enumerate(blocks):
        hidden_BTD = encoding.add_to_layer(layer, hidden_BTD)
        normed_BTD = block.pre_norm(hidden_BTD)
        key, value = block.attention.keys_values(normed_BTD)
        placed = encoding.place(layer, key, cache.position, span)
        key, value = (kept.to(dtype) for kept in cache.write(layer, placed, value))
        query = block.attention.queries(normed_BTD)
        query = encoding.place(layer, query, cache.position, span)
        decay_HBS = cache.write_gates(layer, encoding.log_gates(layer, normed_BTD))
        scoring = Scoring(encoding, layer, span, shared, mask, observer, decay_HBS)
        mixed_HBTK, attention = _attend(query, key, value, scoring)
        hidden_BTD = block.after_attention(hidden_BTD, block.attention.joined(mixed_HBTK))
        if observer is not None:
            observer(layer, hidden_BTD, attention)
    cache.advance(queries)
    return hidden_BTD, cache


@torch.no_grad()
def kv_cache_of(model: "Transformer", memory: Memory) -> KVCache:
    """Projects what `memory` holds to keys and values."""
    like, span = model.embedding.tables[0], memory.span
    batch, length, _ = memory.layers[0].shape
    heads, size = model.config.n_head, model.config.head_size
    dtype = model.kept_dtype or autocast_dtype(like)
    empty = like.new_empty(model.config.n_layer, 2, heads, batch, 0, size, dtype=dtype)
    gates = model.encoding.log_gates(0, memory.layers[0][:, :0])
    gates = None if gates is None else gates.new_empty(model.config.n_layer, *gates.shape)
    cache = KVCache(empty, span, gates, valid_len_B=memory.valid_len_B)
    cache.make_room(length, dtype)
    blocks: Any = model.blocks
    for layer, block in enumerate(blocks):
        normed_BMD = block.pre_norm(memory.layers[layer])
        key, value = block.attention.keys_values(normed_BMD)
        cache.write(layer, model.encoding.place(layer, key, 0, span), value)
        cache.write_gates(layer, model.encoding.log_gates(layer, normed_BMD))
    cache.end, cache.position = (length if span.mem_len else 0), length
    return cache


def _attend(
    query_HBTK: Tensor, key_HBSK: Tensor, value_HBSK: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor | None]:
    """The mixed values [H, B, T, K] of placed queries and keys and, if watched, the attention."""
    encoding, layer, mask = scoring.encoding, scoring.layer, scoring.mask
    if encoding.has_terms:
        terms = encoding.terms(layer, scoring.shared[layer])
        terms = terms._replace(decay_HBS=scoring.decay_HBS)
        if not scoring.watched:
            return _fused(terms, query_HBTK, key_HBSK, value_HBSK, mask), None
        scores_HBTS = terms.scores(query_HBTK, key_HBSK)
    else:
        terms = ScoreTerms(decay_HBS=scoring.decay_HBS)
        scores_HBTS = encoding.scores(layer, query_HBTK, key_HBSK, scoring.shared)
    decay_HBTS = terms.decay_scores(query_HBTK.shape[2])
    scores_HBTS = scores_HBTS if decay_HBTS is None else scores_HBTS + decay_HBTS
    attention_HBTS = mask.onto(scores_HBTS).softmax(-1)
    return attention_HBTS.to(value_HBSK.dtype) @ value_HBSK, attention_HBTS


def _fused(
    terms: ScoreTerms, query_HBTK: Tensor, key_HBSK: Tensor, value_HBSK: Tensor, mask: Mask
) -> Tensor:
    """The mixed values [H, B, T, K] in one kernel, that of PyTorch where ours does not serve."""
    if takes_segment(terms, query_HBTK, mask):
        return segment_attention(terms, query_HBTK, key_HBSK, value_HBSK, mask)
    position, decay = terms.position_scores(query_HBTK), terms.decay_scores(query_HBTK.shape[2])
    if decay is not None:
        position = decay if position is None else position + decay
    query_HBTK = terms.content_query(query_HBTK)
    if position is None and mask.is_causal:
        return scaled_dot_product_attention(query_HBTK, key_HBSK, value_HBSK, is_causal=True)
    added = mask.alone() if position is None else mask.onto(position).to(query_HBTK.dtype)
    return scaled_dot_product_attention(query_HBTK, key_HBSK, value_HBSK, added)

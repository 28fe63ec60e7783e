"""One new token a stream beside cached keys and values: what generation runs, token by token.

Equal to `cached_pass`, with little around the products: where these are small the time goes into
calls, so that each layer's tensors are found once, nothing is masked and little is copied.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from txlbench.models.cache import Cache
from txlbench.models.computing import computing_dtype
from txlbench.models.positions.tables import ScaledTables
from txlbench.models.step_layer import StepLayer

if TYPE_CHECKING:  # it imports this file
    from txlbench.models.transformer import Transformer


def can_step(model: "Transformer", tokens_BT: Tensor, cache: Cache, shared: Any) -> bool:
    """Whether `cached_step` does what `cached_pass` would.

    Args:
        shared: what the encoding recalled for all layers.
    """
    like, view = model.embedding.tables[0], cache.view
    alike = cache.known_B is None and view.stride is None and view.mem_len > 0
    known = model.encoding.has_terms and (shared is None or isinstance(shared, ScaledTables))
    return tokens_BT.shape[1] == 1 and alike and known and computing_dtype(like) == like.dtype


def cached_step(
    model: "Transformer", tokens_B1: Tensor, cache: Cache, shared: ScaledTables | None
) -> Tensor:
    """Hidden states [B, 1, D]; keys and values are written into `cache`, which has room."""
    view, encoding, behind = cache.view, model.encoding, cache.end + 1
    seen = min(cache.length + 1, view.mem_len) if view.same_length else cache.length + 1
    new_N2HBK = cache.states_N2HBCK[..., cache.end, :]
    seen_N2HBSK = cache.states_N2HBCK[..., behind - seen : behind, :]
    hidden_B1D = encoding.add_to_input(model.embedding(tokens_B1))
    for number, layer in enumerate(_layers(model, cache, shared)):
        hidden_B1D = encoding.add_to_layer(number, hidden_B1D)
        table = None if shared is None else shared[number]
        hidden_B1D = layer.step(hidden_B1D, new_N2HBK[number], seen_N2HBSK[number], table)
    cache.advance(1)
    return hidden_B1D


def _layers(model: "Transformer", cache: Cache, shared: Any) -> list[StepLayer]:
    """Found at the first step, then kept."""
    if StepLayer not in cache.kept:
        blocks: Any = model.blocks
        cache.kept[StepLayer] = [
            StepLayer.of(block, model.encoding.terms(number, shared))
            for number, block in enumerate(blocks)
        ]
    layers: list[StepLayer] = cache.kept[StepLayer]
    return layers

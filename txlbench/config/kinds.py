"""The kinds of model that `model.kind` names: what is known of them before a class is loaded."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txlbench.config.plugins import Catalogue

if TYPE_CHECKING:
    from txlbench.config.model import ModelConfig

FLOAT = 4
"""Bytes of a number in float32."""

GATE_RANK = 16
"""Inner size of the two maps that make the log decays of `gla`."""
CHUNK = 64
"""Tokens of a chunk of `gla` and `gated-delta` at most, a power of two. Longer ones multiply more,
shorter ones hand the state on more often."""
SHORT_CONVOLUTION = 4
"""Tokens that the convolution of `gated-delta` sees."""


@dataclass(frozen=True)
class KindEntry:
    """A kind of model: its class, and for recurrent kinds the sizes of its layers.

    Attributes:
        target: a subclass of `models.interface.LanguageModel`, as `package.module:Class`.
        recurrent: a state that holds all that came before is its memory; it has no attention
            length.
        encodes: position enters by `model.encoding`, as in a subclass of `Transformer`.
        remembers_inputs: a token is remembered as its segment saw it, so that it does not matter
            where segments are cut.
        keys: keys of the `model` section about heads and layers that mean something to it.
        layers: weights of all layers, beside embedding and softmax; None where only the built
            model tells.
        state: numbers that all layers remember of one stream.
        state_products: multiplications beside those with weights, for one token in all layers.
        saved: bytes that the gradient of a layer needs for each token, by tgt_len and bytes of a
            number in products; None for as many as a transformer's of the same sizes.
        source: SHA-256 of the plug-in that registered it.
    """

    target: str | type
    recurrent: bool = False
    encodes: bool = False
    remembers_inputs: bool = True
    keys: frozenset[str] = frozenset()
    layers: Callable[["ModelConfig"], int] | None = None
    state: Callable[["ModelConfig"], int] = lambda _: 0
    state_products: Callable[["ModelConfig"], int] = lambda _: 0
    saved: Callable[["ModelConfig", int, int], float] | None = None
    source: str | None = None


def _lstm_layers(config: "ModelConfig") -> int:
    size = config.d_model
    return config.n_layer * (8 * size * size + 8 * size)


LSTM_WORKSPACE = {4: 15.3, 2: 10.8}
"""Numbers of 4 bytes that a layer of PyTorch's LSTM keeps for each token and unit on a CPU."""


def _lstm_saved(config: "ModelConfig", _: int, number: int) -> float:
    return config.d_model * (FLOAT * LSTM_WORKSPACE[number] + 2 * number)


def _qrnn_layers(config: "ModelConfig") -> int:
    """Three gates a layer; the first sees two inputs."""
    size, layers = config.d_model, config.n_layer
    return layers * (3 * size * size + 3 * size) + 3 * size * size


def _qrnn_saved(config: "ModelConfig", tgt_len: int, number: int) -> float:
    passes = max(1, math.ceil(math.log2(tgt_len)))
    return config.d_model * (FLOAT * (4 + 2 * passes) + 2 * number)


def _matrix_state(config: "ModelConfig") -> int:
    """Numbers in the states [K, V] of all heads of one layer."""
    return config.n_head * config.key_size * config.head_size


def _gated_layer(config: "ModelConfig") -> int:
    """Queries, keys, values, gate, output, their norm; feed-forward part and both layer norms."""
    model, inner = config.d_model, config.inner_size
    keys, values = config.n_head * config.key_size, config.n_head * config.head_size
    mixing = model * (2 * keys + 3 * values) + config.head_size
    return mixing + 2 * model * inner + inner + model + 4 * model


def _gla_layers(config: "ModelConfig") -> int:
    """With W_1, W_2 and b of the decays; and the norm behind the last layer."""
    keys = config.n_head * config.key_size
    decays = GATE_RANK * (config.d_model + keys) + keys
    return config.n_layer * (_gated_layer(config) + decays) + 2 * config.d_model


def _delta_layers(config: "ModelConfig") -> int:
    """With W_a, W_b, A and b of each head and the convolution; and the norm behind all."""
    keys, values = config.n_head * config.key_size, config.n_head * config.head_size
    gates = 2 * config.n_head * (config.d_model + 1)
    convolution = SHORT_CONVOLUTION * (2 * keys + values)
    return config.n_layer * (_gated_layer(config) + gates + convolution) + 2 * config.d_model


def _delta_state(config: "ModelConfig") -> int:
    """The matrices, and the inputs that the next convolution sees."""
    channels = config.n_head * (2 * config.key_size + config.head_size)
    return config.n_layer * (_matrix_state(config) + (SHORT_CONVOLUTION - 1) * channels)


def _gated_saved(
    config: "ModelConfig", tgt_len: int, number: int, exact: float, chunked: float, scores: float
) -> float:
    """What both gated kinds keep of a token in one layer, fitted to what PyTorch saves.

    Args:
        exact, chunked: float32 numbers for each unit, beside those that whole chunks keep.
        scores: for each head and token of a chunk.
    """
    chunk = min(CHUNK, 1 << (tgt_len - 1).bit_length())
    padding = math.ceil(tgt_len / chunk) * chunk / tgt_len
    masks = 2 if config.dropout and not config.variational else 0
    in_products = (3 + masks) * config.d_model + config.inner_size
    units, rows = config.n_head * config.head_size, config.n_head * chunk
    in_chunks = padding * (chunked * units + scores * rows)
    return number * in_products + FLOAT * (exact * units + in_chunks)


def _gla_saved(config: "ModelConfig", tgt_len: int, number: int) -> float:
    return _gated_saved(config, tgt_len, number, exact=13.0, chunked=9.0, scores=1.7)


def _delta_saved(config: "ModelConfig", tgt_len: int, number: int) -> float:
    return _gated_saved(config, tgt_len, number, exact=20.0, chunked=3.4, scores=5.0)


GATED_KEYS = frozenset({"n_head", "d_head", "d_inner"})

_KINDS = {
    "transformer": KindEntry("txlbench.models.transformer:Transformer", encodes=True),
    "hf": KindEntry("txlbench.models.architectures.architecture_model:ArchitectureModel"),
    "lstm": KindEntry(
        "txlbench.models.recurrent:LSTM",
        recurrent=True,
        layers=_lstm_layers,
        state=lambda config: 2 * config.n_layer * config.d_model,
        saved=_lstm_saved,
    ),
    "qrnn": KindEntry(
        "txlbench.models.recurrent:QRNN",
        recurrent=True,
        layers=_qrnn_layers,
        state=lambda config: (config.n_layer + 1) * config.d_model,
        saved=_qrnn_saved,
    ),
    "gla": KindEntry(
        "txlbench.models.gated_recurrent:GatedLinearAttention",
        recurrent=True,
        keys=GATED_KEYS,
        layers=_gla_layers,
        state=lambda config: config.n_layer * _matrix_state(config),
        state_products=lambda config: 2 * config.n_layer * _matrix_state(config),
        saved=_gla_saved,
    ),
    "gated-delta": KindEntry(
        "txlbench.models.gated_recurrent:GatedDeltaNet",
        recurrent=True,
        keys=GATED_KEYS,
        layers=_delta_layers,
        state=_delta_state,
        state_products=lambda config: 3 * config.n_layer * _matrix_state(config),
        saved=_delta_saved,
    ),
}
KINDS: Catalogue[KindEntry] = Catalogue("txlbench.models", "kind of model", _KINDS)
"""By name, as in `model.kind`."""


def register_kind(name: str, entry: KindEntry) -> None:
    """Makes somebody's own kind of model known by `name`; its module is not imported.

    Raises:
        UserError: if the name stands for another kind.
    """
    KINDS.register(name, entry)

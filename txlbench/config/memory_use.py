"""Memory that training takes, by formula: weights, gradients, optimiser, activations, memory.

With b streams of a chunk (batch_size / batch_chunk / devices), N = b tgt_len tokens,
S = mem_len + tgt_len keys, widths D (d_model), I = n_head d_head, F (d_inner), and numbers of `a`
bytes in products (4, or 2 under bf16 autocast), the gradient of one transformer layer needs::

    8 N D     both layer norms' inputs, in float32
    a N D     the feed-forward part's input         a N D     the layer's input
    a N I     queries                               a N I     what attention mixes
    a N F     the feed-forward part's inner states  2 a N D   dropout masks, where there is dropout
    a b S D   [memory, segment], where there is memory
    2 a b S I keys and values
    a b H T W attention probabilities on a CPU, W the keys of a tile (`models.kernels.tiles`)

and a S D + a S I for distances in a relative encoding. On a CUDA device the kernel keeps no
probabilities, and with attention dropout one layer's scores at a time are computed again. A test
holds the sum against the tensors that PyTorch saves, and the whole against the peak of a process.
"""

import math
from dataclasses import dataclass

from txlbench.config.counting import parameters
from txlbench.config.kinds import FLOAT
from txlbench.config.model import ModelConfig, clusters_of
from txlbench.config.run_config import RunConfig
from txlbench.config.train import TrainConfig

TILE_BYTES = 2**22
"""Of a tile's scores, and numbers of logits that are held at once; tests hold them equal to those
of the kernels."""
PADDING = 96

PROCESS = {"cpu": 270 * 10**6, "cuda": 600 * 10**6}
"""What a training process holds besides tensors: Python and PyTorch, or a CUDA context."""
BASELINE = 250 * 10**6
"""The part of the process that is there before a model is built (not growth)."""
CPU_STAGING = 40 * 10**6
"""What products, dropout masks and the gradient's own steps take for a moment."""
FRAGMENTATION = {"cpu": 1.27, "cuda": 1.1}
"""Memory over live tensors: freed blocks do not all fit what comes next. Fitted on a CPU with
glibc, with `CPU_STAGING`, to within 15 % of 25 measured shapes; a guess on CUDA devices."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that training takes, term by term.

    Attributes:
        weights, gradients, optimiser, average: float32; Adam has two moments.
        activations: what the gradient of one chunk needs.
        loss: logits and gradients of the vocabulary's weights while the loss is differentiated.
        memory_states: cached states of all streams, and the next ones of a chunk.
        batch: token ids.
        overhead: the process itself and what its allocator cannot use again.
        total: the peak. Activations and gradients peak apart where the batch is one chunk, so
            that only the larger counts.
    """

    weights: int
    gradients: int
    optimiser: int
    average: int
    activations: int
    loss: int
    memory_states: int
    batch: int
    overhead: int
    total: int


def training_memory(
    config: RunConfig, vocabulary_size: int, precision: str, device: str = "cpu"
) -> MemoryUse:
    """The peak of memory of one of `train.devices`: of the process on a CPU, else of the device.

    Args:
        precision: fp32, tf32 or bf16, as resolved.
        device: cpu or cuda.
    """
    model, train = config.model, config.train
    number = 2 if precision == "bf16" else FLOAT
    weights = FLOAT * parameters(model, vocabulary_size)
    activations = saved_for_gradient(config, vocabulary_size, number, device)
    states = _memory_states(model, train, number)
    loss = _loss(model, train, vocabulary_size, number)
    batch = 2 * 8 * train.batch_size * (train.tgt_len + 1)
    average = weights if train.average_from is not None else 0
    fixed = 3 * weights + average + states + batch
    ahead = activations + loss
    live = fixed + (ahead + weights if train.batch_chunk > 1 else max(ahead, weights))
    working = CPU_STAGING if device == "cpu" else 0
    total = PROCESS[device] + working + round(FRAGMENTATION[device] * live)
    return MemoryUse(
        weights=weights,
        gradients=weights,
        optimiser=2 * weights,
        average=average,
        activations=activations,
        loss=loss,
        memory_states=states,
        batch=batch,
        overhead=total - live,
        total=total,
    )


def rows_of(train: TrainConfig) -> int:
    """Streams that one chunk of one worker has."""
    return max(1, train.batch_size // train.batch_chunk // train.devices)


def saved_for_gradient(config: RunConfig, vocabulary_size: int, number: int, device: str) -> int:
    """Bytes of the tensors that one chunk's forward pass keeps for its gradient.

    Args:
        number: bytes of a number in products.
    """
    model, train = config.model, config.train
    tokens, width = rows_of(train) * train.tgt_len, model.d_model
    saved = model.kind_entry.saved
    if saved is not None:
        layers = model.n_layer * tokens * saved(model, train.tgt_len, number)
    else:
        layers = model.n_layer * _transformer_layer(model, train, number, device)
        layers += _distances(model, train)
    masked = model.dropout and model.kind not in ("lstm", "qrnn")  # one mask for all tokens there
    masks = 2 * tokens * width * FLOAT if masked else 0
    ends = tokens * width * number + masks
    casts = number * _cast_weights(model, vocabulary_size) if number < FLOAT else 0
    return round(layers + ends + casts)


def _transformer_layer(model: ModelConfig, train: TrainConfig, number: int, device: str) -> float:
    rows, length, memory = rows_of(train), train.tgt_len, train.memory
    tokens, keys = rows * length, memory + length
    width, inner = model.d_model, model.n_head * model.head_size
    masks = 2 if model.dropout and not model.variational else 0
    states = 2 * FLOAT * tokens * width
    states += number * tokens * ((2 + masks) * width + 2 * inner + model.inner_size)
    context = number * rows * keys * width if memory or model.pre_lnorm else 0
    padding = PADDING if device == "cpu" else 0
    projected = 2 * number * rows * (keys + padding) * inner
    positions = 0
    if model.encoding_entry is not None and model.encoding_entry.rows:
        positions = number * (keys + 1 + padding) * inner
        positions += number * (keys + 1) * width if number < FLOAT else 0
    return states + context + projected + positions + _probabilities(model, train, number, device)


def _probabilities(model: ModelConfig, train: TrainConfig, number: int, device: str) -> float:
    """Attention probabilities as tiles keep them on a CPU, and dropout's masks of a byte."""
    rows, length, keys = rows_of(train), train.tgt_len, train.memory + train.tgt_len
    every = rows * model.n_head * length * keys
    if device != "cpu":
        again = 3 * number * every / model.n_layer if model.dropatt else 0
        return 4 * rows * model.n_head * length + again
    parts = min(length, math.ceil(model.n_head * length * keys * number / TILE_BYTES))
    share = (train.memory + length * (parts + 1) / (2 * parts)) / keys
    return number * every * share + (every if model.dropatt else 0)


def _distances(model: ModelConfig, train: TrainConfig) -> float:
    """The sinusoids that all layers share."""
    entry = model.encoding_entry
    if entry is None or not entry.rows:
        return 0.0
    return FLOAT * (train.memory + train.tgt_len + 1) * model.d_model


def _cast_weights(model: ModelConfig, vocabulary_size: int) -> int:
    """Weights that autocast copies: all but the tables, which the softmax casts."""
    tables = sum(each.size * each.width for each in clusters_of(model, vocabulary_size))
    return parameters(model, vocabulary_size) - tables


def _memory_states(model: ModelConfig, train: TrainConfig, number: int) -> int:
    """The states that attention carries from segment to segment; a recurrent state is small."""
    if model.is_recurrent:
        return 2 * FLOAT * train.batch_size * model.kind_entry.state(model)
    stored = FLOAT if model.pre_lnorm else number
    rows = train.batch_size // train.devices + rows_of(train)
    return stored * model.n_layer * rows * train.memory * model.d_model


def _loss(model: ModelConfig, train: TrainConfig, vocabulary_size: int, number: int) -> int:
    """Logits in float32 and the gradient of the vocabulary's weights.

    A table that all clusters share gets a gradient of its full size from each part of the softmax
    that is added up; under autocast it is cast first.
    """
    clusters = clusters_of(model, vocabulary_size)
    tokens = rows_of(train) * train.stride
    logits = tokens * max(each.size for each in clusters)
    table = sum(each.size * each.width for each in clusters)
    if logits <= TILE_BYTES:
        held = 2 * FLOAT * logits
        gradients = FLOAT * table if len(clusters) > 1 else 0
    else:
        held = 2 * FLOAT * TILE_BYTES
        gradients = FLOAT * table * (2 if len(clusters) > 1 and model.div_val == 1 else 1)
    casts = 2 * number * table if number < FLOAT else 0
    return held + gradients + casts

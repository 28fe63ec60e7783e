"""Parameters, tokens, FLOPs and checkpoints by formula, before anything is built.

Memory in training has a module of its own (`memory_use`).
"""

import math
from itertools import pairwise
from typing import Any

from txlbench.config.catalogue import ENCODINGS, load_class
from txlbench.config.kinds import FLOAT
from txlbench.config.measurements import Measurement
from txlbench.config.model import (
    ARCHITECTURE_SIZES,
    ModelConfig,
    clusters_of,
    softmax_projections,
)
from txlbench.config.run_config import RunConfig

WEIGHT_COUNT = "txlbench.models.factory:weight_count"
"""The function that counts the weights of a built model; it loads PyTorch."""
EULER = 0.5772
"""The sum of 1 / r over the ranks 1, ..., n is about log n + EULER."""


def parameters(config: ModelConfig, vocabulary_size: int) -> int:
    """Weights of the model, shared ones once; a test holds it against the built module."""
    if config.kind == "hf":
        return int(_architecture(config, vocabulary_size).parameters)
    if config.plugin is not None:
        return _built_weights(config, vocabulary_size)
    outside, entry = _embedding_and_softmax(config, vocabulary_size), config.encoding_entry
    if entry is None:
        return outside + _kind_layers(config)
    layers = config.n_layer * (_block(config) + _compression(config))
    return outside + layers + entry.parameters(config)


def _built_weights(config: ModelConfig, vocabulary_size: int) -> int:
    """Of a plug-in, whose formula nobody has held against what it builds."""
    count: int = load_class(WEIGHT_COUNT)(config, vocabulary_size)
    return count


def _kind_layers(config: ModelConfig) -> int:
    """Weights of all layers of a recurrent kind, or of a plug-in's."""
    if config.kind_entry.layers is None:
        return _built_weights(config, 1) - _embedding_and_softmax(config, 1)
    return config.kind_entry.layers(config)


def _architecture(config: ModelConfig, vocabulary_size: int) -> Any:
    """The `ArchitectureSizes` of a model of kind hf, for which transformers is imported."""
    return load_class(ARCHITECTURE_SIZES)(config, vocabulary_size)


def _embedding_and_softmax(config: ModelConfig, vocabulary_size: int) -> int:
    clusters = clusters_of(config, vocabulary_size)
    model, embed = config.d_model, config.embed_size
    if config.div_val > 1:
        tables = sum(cluster.size * cluster.width for cluster in clusters)
        projections = sum(model * cluster.width for cluster in clusters)
    else:
        tables = vocabulary_size * embed
        projections = model * embed if embed != model else 0
    own = zip(clusters, softmax_projections(config), strict=True)
    softmax = sum(model * cluster.width for cluster, has_own in own if has_own)
    tails = len(clusters) - 1
    return tables + projections + softmax + vocabulary_size + tails * (embed + 1)


def _block(config: ModelConfig) -> int:
    model, inner, heads = config.d_model, config.inner_size, config.n_head * config.head_size
    attention = 4 * model * heads
    feed_forward = 2 * model * inner + inner + model
    return attention + feed_forward + 4 * model


def _compression(config: ModelConfig) -> int:
    """Weights that make compressed states of one layer's memory."""
    if config.memory != "compressive":
        return 0
    return config.compress_rate * config.d_model**2 + config.d_model


def kept_numbers(config: RunConfig) -> int:
    """Numbers that training carries from segment to segment for one stream, over all layers.

    Of a transformer mem_len states a layer, whatever its kind of memory.
    """
    model, memory = config.model, config.train.memory
    if model.kind == "hf":
        return memory * int(_architecture(model, 1).cached)
    if model.is_recurrent:
        return model.kind_entry.state(model) if memory else 0
    return memory * model.d_model * model.n_layer


def train_targets(config: RunConfig) -> int:
    """The predictions trained on: batch_size * stride * max_step."""
    return config.train.batch_size * config.train.stride * config.train.max_step


def train_flops(config: RunConfig, vocabulary_size: int) -> int:
    """Necessary FLOPs of the training: two a multiplication, backward twice the forward.

    Each projection once for a new token, keys and values of the memory once a step, attention
    over M + (L + 1) / 2 keys. For kind hf 6 N for each token, with the N weights that it is
    multiplied with, as is usual (Kaplan et al. 2020): what attention or a scan takes is left out.
    """
    train = config.train
    tokens = train.batch_size * train.tgt_len * train.max_step
    forward = token_flops(config.model, vocabulary_size, train.tgt_len, train.memory)
    return round(3 * tokens * forward)


def token_flops(
    model: ModelConfig, vocabulary_size: int, tgt_len: int, mem_len: int, cached: bool = False
) -> float:
    """Necessary FLOPs of a token's forward pass in segments of `tgt_len` with `mem_len`.

    Args:
        cached: keys and values of the memory were computed with their tokens.
    """
    if model.kind == "hf":
        return 2.0 * _architecture(model, vocabulary_size).products
    layers = _layers_work(model, tgt_len, mem_len, cached)
    return 2 * (layers + _vocabulary_work(model, vocabulary_size))


def evaluation_flops(
    model: ModelConfig, vocabulary_size: int, measurement: Measurement, predictions: int
) -> float:
    """Necessary FLOPs of one measurement: all tokens read, lead-ins too, and losses of targets.

    Windows are read whole each time they move on; streams keep keys and values.

    Args:
        predictions: those that the split has.
    """
    each = measurement
    targets = min(each.tokens or predictions, predictions)
    streams = min(each.batch_size, targets)
    if each.regime == "windows":
        length = min(each.tgt_len, predictions)
        read = math.ceil(targets / streams / each.stride) * streams * length
    else:
        length = each.tgt_len
        read = targets + streams * (each.mem_len if each.tokens else 0)
    if model.kind == "hf":
        return read * token_flops(model, vocabulary_size, length, each.mem_len)
    memory = each.mem_len - (length + 1) / 2 if each.same_length else each.mem_len
    layers = _layers_work(model, length, memory, cached=True)
    return 2 * (read * layers + targets * _vocabulary_work(model, vocabulary_size))


def _layers_work(model: ModelConfig, tgt_len: int, mem_len: float, cached: bool) -> float:
    """Multiplications of all layers for one token, forward."""
    if model.encoding_entry is None:
        return _kind_layers(model) + model.kind_entry.state_products(model)
    return model.n_layer * _layer_work(model, tgt_len, mem_len, cached)


def _vocabulary_work(model: ModelConfig, vocabulary_size: int) -> float:
    """Multiplications of embedding and softmax for one token.

    A token takes the softmax's head, and of the tails and the embedding's projections its own.
    How often each is met nobody knows before the corpus is read; ids are in the order of frequency,
    so Zipf's law is taken for it: rank r in proportion to 1 / r.
    """
    clusters = clusters_of(model, vocabulary_size)
    reached = [0.0] + [math.log(each.end) + EULER for each in clusters]
    shares = [(end - begin) / reached[-1] for begin, end in pairwise(reached)]
    projection = model.d_model if model.div_val > 1 or model.embed_size != model.d_model else 0
    work: float = (clusters[0].size + len(clusters) - 1 + projection) * clusters[0].width
    for share, cluster in zip(shares, clusters, strict=True):
        tail = cluster.size + projection if cluster.first else 0
        work += share * (projection + tail) * cluster.width
    return work


def _layer_work(model: ModelConfig, tgt_len: int, mem_len: float, cached: bool) -> float:
    """Multiplications of a transformer layer for one token, forward."""
    width, heads = model.d_model, model.n_head * model.head_size
    keys = mem_len + (tgt_len + 1) / 2
    projections = 4 * width * heads + 2 * width * model.inner_size
    memory = 0.0 if cached else 2 * width * heads * mem_len / tgt_len
    content_and_values = 2 * keys * heads
    positions = ENCODINGS[model.encoding].position_products(model, keys)
    compression = width**2 if model.memory == "compressive" else 0
    return projections + memory + content_and_values + positions + compression


def resume_bytes(config: RunConfig, vocabulary_size: int) -> int:
    """Bytes of a checkpoint to resume from: weights, Adam's moments, an average, memory."""
    model, train = config.model, config.train
    copies = 3 + (train.average_from is not None)
    states = train.batch_size * kept_numbers(config)
    return FLOAT * (copies * parameters(model, vocabulary_size) + states)


def checkpoint_bytes(config: RunConfig, vocabulary_size: int) -> int:
    """Bytes of a run's checkpoints: two to resume from, and the best weights."""
    best = FLOAT * parameters(config.model, vocabulary_size)
    return 2 * resume_bytes(config, vocabulary_size) + best

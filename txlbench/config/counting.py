"""Parameters, tokens and FLOPs by formula from the configuration, before anything is built."""

from txlbench.config.clusters import clusters_of, softmax_projections
from txlbench.config.schema import ModelConfig, RunConfig


def parameters(config: ModelConfig, vocabulary_size: int) -> int:
    """Weights of the model, shared ones once; a test holds it against the built module."""
    return (
        _embedding_and_softmax(config, vocabulary_size)
        + config.n_layer * _block(config)
        + _positions(config)
    )


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


def _positions(config: ModelConfig) -> int:
    """What the encoding owns, over all layers."""
    layers, model, heads = config.n_layer, config.d_model, config.n_head * config.head_size
    entries = (config.max_distance or 0) + 1
    if config.encoding == "xl":
        biases = layers if config.untie_r else 1
        return layers * model * heads + 2 * biases * heads
    if config.encoding == "shaw":
        bias = layers * (heads + entries * config.n_head) if config.shaw_bias else 0
        return layers * entries * heads + bias
    if config.encoding == "al-rfou":
        return layers * entries * model
    return 0


def train_targets(config: RunConfig) -> int:
    """Predictions trained on, were every segment full: batch_size * stride * max_step."""
    return config.train.batch_size * config.train.stride * config.train.max_step


def train_flops(config: RunConfig, vocabulary_size: int) -> int:
    """Necessary FLOPs of the training: two a multiplication, backward twice the forward.

    Each projection once for a new token, keys and values of the memory once a step, attention
    over M + (L + 1) / 2 keys. An adaptive softmax counts its head, and each tail in full.
    """
    model, train = config.model, config.train
    width, heads, length = model.d_model, model.n_head * model.head_size, train.tgt_len
    keys = train.memory + (length + 1) / 2
    projections = 4 * width * heads + 2 * width * model.inner_size
    memory = 2 * width * heads * train.memory / length
    content_and_values = 2 * keys * heads
    positions = keys * heads if model.is_relative else 0.0
    layer = projections + memory + content_and_values + positions
    softmax = sum(
        cluster.size * cluster.width + (width * cluster.width if model.div_val > 1 else 0)
        for cluster in clusters_of(model, vocabulary_size)
    )
    tokens = train.batch_size * length * train.max_step
    return round(3 * 2 * tokens * (model.n_layer * layer + softmax))

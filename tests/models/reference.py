"""A slow Transformer-XL: one stream, one token, one head and one term of a score at a time.

Written from the equations of Dai et al. 2019 (section 3.3) with the released code's additions:
scores over sqrt(d_head), embeddings times sqrt(d_model), u and v per head, sinusoids in halves,
residual and layer norm around the feed-forward part. Plain numpy in float64; nothing is shared
with the package but the names of the weights.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.config.model import ModelConfig
from txlbench.models.transformer import Transformer

Vector = NDArray[np.float64]


class SlowTransformer:
    """Feeds one stream segment by segment; memory is a list of vectors for each layer."""

    def __init__(self, model: Transformer, span: AttentionSpan) -> None:
        self.config: ModelConfig = model.config
        self.span = span
        self.weights: dict[str, Any] = {
            name: parameter.detach().double().numpy()
            for name, parameter in model.named_parameters()
        }
        self.memory: list[list[Vector]] = [[] for _ in range(self.config.n_layer)]
        self.compressed: list[list[Vector]] = [[] for _ in range(self.config.n_layer)]

    def losses(self, tokens: list[int], targets: list[int]) -> list[float]:
        """The loss of each target, in nats, through the full softmax."""
        table, bias = self.weights["embedding.tables.0"], self.weights["softmax.bias"]
        losses = []
        for hidden, target in zip(self.segment(tokens), targets, strict=True):
            logits = np.array([row @ hidden for row in table]) + bias
            losses.append(-math.log(softmax(logits)[target]))
        return losses

    def segment(self, tokens: list[int]) -> list[Vector]:
        """The last layer's output for each token of the next segment."""
        hidden = [self.embed(token, place) for place, token in enumerate(tokens)]
        for layer in range(self.config.n_layer):
            if self.config.encoding == "al-rfou":
                rows = self.weights["encoding.table"][layer]
                hidden = [vector + rows[place] for place, vector in enumerate(hidden)]
            old = self.compressed[layer] + self.memory[layer]
            states = old + hidden
            output = [self.layer(layer, states[: i + 1]) for i in range(len(old), len(states))]
            entering = output if self.config.memory == "shift" else hidden
            self.remember(layer, entering[: self.span.stride] if self.span.stride else entering)
            hidden = output
        return hidden

    def remember(self, layer: int, entering: list[Vector]) -> None:
        """Keeps mem_len states of a layer, by the kind of memory."""
        seen, kept = self.memory[layer] + entering, self.span.mem_len
        if self.config.memory == "compressive" and kept:
            while len(seen) > kept - kept // 2 and len(seen) >= self.config.compress_rate:
                leaving = [seen.pop(0) for _ in range(self.config.compress_rate)]
                self.compressed[layer].append(self.compress(layer, leaving))
            seen = seen[-(kept - kept // 2) :]
            room = kept - len(seen)
            self.compressed[layer] = self.compressed[layer][-room:] if room else []
        elif len(seen) > kept:
            first = seen[: self.span.sinks]
            seen = first + seen[len(seen) - kept + len(first) :]
        self.memory[layer] = seen

    def compress(self, layer: int, leaving: list[Vector]) -> Vector:
        """Rae et al. 2020: a convolution as wide as its step, which is a map for each place."""
        name = f"compressor.convolutions.{layer}"
        maps = self.weights[f"{name}.weight"]
        return self.weights[f"{name}.bias"] + sum(
            maps[:, :, place] @ state for place, state in enumerate(leaving)
        )

    def embed(self, token: int, place: int) -> Vector:
        vector = self.weights["embedding.tables.0"][token] * math.sqrt(self.config.d_model)
        if self.config.encoding == "learned":
            vector = vector + self.weights["encoding.table"][place]
        if self.config.encoding == "absolute":
            vector = vector + sinusoid(place, self.config.d_model)
        return vector

    def layer(self, layer: int, states: list[Vector]) -> Vector:
        """The layer's output for the last of `states`, which attends to all of them."""
        block, own = f"blocks.{layer}", states[-1]
        if self.config.pre_lnorm:
            normed = [self.norm(f"{block}.attention_norm", state) for state in states]
            own = own + self.attend(layer, normed)
            return own + self.feed(block, self.norm(f"{block}.feed_forward_norm", own))
        own = self.norm(f"{block}.attention_norm", own + self.attend(layer, states))
        return self.norm(f"{block}.feed_forward_norm", own + self.feed(block, own))

    def norm(self, name: str, vector: Vector) -> Vector:
        spread = np.sqrt(((vector - vector.mean()) ** 2).mean() + 1e-5)
        unit = (vector - vector.mean()) / spread
        return unit * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def feed(self, block: str, vector: Vector) -> Vector:
        def linear(part: str, given: Vector) -> Vector:
            name = f"{block}.feed_forward.{part}"
            return self.weights[f"{name}.weight"] @ given + self.weights[f"{name}.bias"]

        return linear("outer", np.maximum(linear("inner", vector), 0.0))

    def attend(self, layer: int, states: list[Vector]) -> Vector:
        """Attention of the last state over all, the heads one after the other."""
        size, name = self.config.head_size, f"blocks.{layer}.attention"
        w_q = self.weights[f"{name}.q_net.weight"]
        w_k, w_v = np.split(self.weights[f"{name}.kv_net.weight"], 2)
        i, mixed = len(states) - 1, []
        for head in range(self.config.n_head):
            rows = slice(head * size, (head + 1) * size)
            query = w_q[rows] @ states[i]
            visible = [j for j in range(i + 1) if self.sees(i - j) or j < self.span.sinks]
            passed = [self.passed(layer, head, state) for state in states]
            scores = [
                self.score(layer, head, query, w_k[rows] @ states[j], i - j) / math.sqrt(size)
                + self.bias(layer, head, i - j)
                + sum(passed[j + 1 : i + 1])
                for j in visible
            ]
            weighted = zip(softmax(np.array(scores)), visible, strict=True)
            mixed.append(sum(share * (w_v[rows] @ states[j]) for share, j in weighted))
        return self.weights[f"{name}.o_net.weight"] @ np.concatenate(mixed)

    def sees(self, distance: int) -> bool:
        return not self.span.same_length or distance < self.span.mem_len - self.span.sinks

    def score(self, layer: int, head: int, query: Vector, key: Vector, distance: int) -> float:
        """Terms (a) to (d) for one query and one key, before 1/sqrt(d_head)."""
        clamp = self.span.clamp_len
        distance = distance if clamp is None else min(distance, clamp)
        a = query @ key
        if self.config.encoding == "xl":
            owner, size = (layer if self.config.untie_r else 0), self.config.head_size
            w_r = self.weights[f"encoding.r_net.{layer}.weight"][head * size : (head + 1) * size]
            position = w_r @ sinusoid(distance, self.config.d_model)
            b = query @ position
            c = self.weights["encoding.u"][owner, head] @ key
            d = self.weights["encoding.v"][owner, head] @ position
            return a + b + c + d
        if self.config.encoding == "shaw":
            entry = min(distance, self.config.max_distance or 0)
            b = query @ self.weights["encoding.table"][layer, entry, head]
            if not self.config.shaw_bias:
                return a + b
            c = self.weights["encoding.content_bias"][layer, head] @ key
            d = self.weights["encoding.distance_bias"][layer, entry, head]
            return a + b + c + d
        if self.config.encoding == "rope":
            return float(query @ turned(key, -distance, self.span.rope))
        return a

    def bias(self, layer: int, head: int, distance: int) -> float:
        """What is added to a score after 1/sqrt(d_head)."""
        clamp = self.span.clamp_len
        distance = distance if clamp is None else min(distance, clamp)
        if self.config.encoding == "alibi":
            return -slope(head, self.config.n_head) * distance
        if self.config.encoding == "t5":
            bucket = bucket_of(distance, self.config.max_distance or 0)
            return float(self.weights["encoding.table"][head, bucket])
        if self.config.encoding == "kerple":
            p, a = (max(self.weights[f"encoding.{each}"][layer, head], 0.01) for each in "pa")
            return float(-p * math.log(1 + a * distance))
        return 0.0

    def passed(self, layer: int, head: int, state: Vector) -> float:
        """The logarithm of the gate with which a token lets the past through."""
        if self.config.encoding != "fox":
            return 0.0
        name = f"encoding.gates.{layer}"
        opening = self.weights[f"{name}.weight"][head] @ state + self.weights[f"{name}.bias"][head]
        return -math.log(1 + math.exp(-(opening + 5)))


def bucket_of(distance: int, farthest: int) -> int:
    """T5's bucket: 16 single distances, then 16 that grow by equal factors up to the farthest."""
    if distance < 16:
        return distance
    return min(16 + int(16 * math.log(distance / 16) / math.log(farthest / 16)), 31)


def turned(vector: Vector, position: int, scaling: RopeScaling | None) -> Vector:
    """RoPE, a pair of numbers at a time; YaRN's temperature once, for query and key together."""
    half, result = len(vector) // 2, vector.copy()
    scale = 1.0
    if scaling is not None and scaling.kind == "yarn":
        scale = (0.1 * math.log(scaling.factor) + 1) ** 2
    for f in range(half):
        angle = position * speed(f, 2 * half, scaling)
        x, y = vector[f], vector[f + half]
        result[f] = scale * (x * math.cos(angle) - y * math.sin(angle))
        result[f + half] = scale * (x * math.sin(angle) + y * math.cos(angle))
    return result


def speed(f: int, size: int, scaling: RopeScaling | None) -> float:
    """The angle by which pair f turns at a step (Su et al. 2021; Peng et al. 2023, section 3)."""
    plain = 10000 ** (-2 * f / size)
    if scaling is None:
        return plain
    s = scaling.factor
    if scaling.kind == "pi":
        return plain / s
    if scaling.kind == "ntk":
        return (10000 * s ** (size / (size - 2))) ** (-2 * f / size)

    def place(turns: int) -> float:  # of the pair that turns so often within the trained length
        return size * math.log(scaling.trained / (2 * math.pi * turns)) / 2 / math.log(10000)

    low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), size - 1)
    ramp = min(max((f - low) / (high - low or 0.001), 0), 1)
    return (1 - ramp) * plain + ramp * plain / s


def slope(head: int, heads: int) -> float:
    """ALiBi's slopes: a geometric row for powers of two, else of two such rows (Press et al.)."""

    def row(count: int) -> list[float]:
        return [2 ** (-8 * (each + 1) / count) for each in range(count)]

    below = 1
    while below * 2 <= heads:
        below *= 2
    return [*row(below), *row(2 * below)[0::2]][head]


def sinusoid(position: int, width: int) -> Vector:
    angles = [position / 10000 ** (k / width) for k in range(0, width, 2)]
    halves = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return np.array(halves[:width])


def softmax(scores: Vector) -> Vector:
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()

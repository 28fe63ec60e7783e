"""The shared model core: embedding, layers with memory, softmax; any position encoding.

The four models that the paper compares differ in the encoding object and in the view only.
"""

from typing import Any, cast

from torch import Tensor, nn

from txlbench.config.catalogue import ENCODINGS
from txlbench.config.model import ModelConfig
from txlbench.models.attention import Scoring
from txlbench.models.block import Block
from txlbench.models.cache import Cache
from txlbench.models.cached_pass import cache_of, cached_pass
from txlbench.models.dropout import dropout_for
from txlbench.models.embedding import Embedding
from txlbench.models.interface import LanguageModel, Observer, View, sees_attention
from txlbench.models.mask import Mask
from txlbench.models.memory import Memory, carried, with_memory
from txlbench.models.positions.encoding import Encoding
from txlbench.models.softmax import AdaptiveSoftmax


class Transformer(LanguageModel):
    """A causal transformer over segments (paper section 3; interface: `LanguageModel`)."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, vocabulary_size)
        self.encoding: Encoding = ENCODINGS.load(config.encoding)(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.dropout_input = dropout_for(config)
        self.dropout_output = dropout_for(config)
        self.softmax = AdaptiveSoftmax(config, self.embedding)

    def initial_state(self, batch_size: int, view: View) -> Memory:
        """Empty memory: not zeros, which the official TensorFlow code attends to (E18)."""
        like, blocks = self.embedding.tables[0], cast("Any", self.blocks)
        empty = blocks[0].entering(like.new_empty(batch_size, 0, self.config.d_model))
        return Memory((empty,) * self.config.n_layer, view)

    def evaluation_state(self, state: Memory) -> Cache:
        """Keys and values of `state`, in a buffer that `forward` writes on in."""
        return cache_of(self, state)

    def forward(
        self, tokens_BT: Tensor, state: Memory | Cache, observer: Observer | None = None
    ) -> tuple[Tensor, Memory | Cache]:
        """See `LanguageModel.forward`."""
        if isinstance(state, Cache):
            return cached_pass(self, tokens_BT, state, observer)
        queries, view = tokens_BT.shape[1], state.view
        like = self.embedding.tables[0]
        keys = state.layers[0].shape[1] + queries
        window = view.mem_len if view.same_length else None
        mask = Mask(queries, keys, window, state.known_B, like)
        shared = self.encoding.prepare(keys, view.clamp_len, like)
        hidden_BTD = self.dropout_input(self.encoding.add_to_input(self.embedding(tokens_BT)))
        remembered = []
        blocks: Any = self.blocks
        for layer, block in enumerate(blocks):
            hidden_BTD = self.encoding.add_to_layer(layer, hidden_BTD)
            entering_BTD = block.entering(hidden_BTD)
            context_BSD = with_memory(state.layers[layer], entering_BTD)
            remembered.append(carried(context_BSD, queries, view))
            scoring = Scoring(self.encoding, layer, shared, mask, sees_attention(observer))
            hidden_BTD, attention = block(hidden_BTD, entering_BTD, context_BSD, scoring)
            if observer is not None:
                observer(layer, hidden_BTD, attention)
        return self.dropout_output(hidden_BTD), state.advanced(tuple(remembered), queries)

    def losses(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """See `LanguageModel.losses`."""
        losses = self.softmax.losses(hidden_BTD.flatten(0, 1), targets_BT.flatten())
        return losses.view(targets_BT.shape)

    def log_probs(self, hidden_BD: Tensor) -> Tensor:
        """See `LanguageModel.log_probs`."""
        return self.softmax.log_probs(hidden_BD)

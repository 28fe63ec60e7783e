"""Tries an architecture before it is trained: is it causal, and may its memory be carried?

transformers drops the recurrent state of some architectures in a segment of several tokens, without
a word; so nothing is believed that was not tried on the model itself.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.config.run_config import RunConfig
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError
from txlbench.models.architectures.architecture import architecture_sizes
from txlbench.models.architectures.architecture_model import ArchitectureModel
from txlbench.models.architectures.cache_state import KEYS
from txlbench.models.layer_masks import FULL, SLIDING

SEGMENT = 5
SEGMENTS = 4
ROUNDING = 1e-5
"""Of the logits' spread. Equal computations differ by 1e-6 where an architecture computes in
float32 inside; a dropped state of Jamba makes 2e-4 with fresh weights, of Mamba 3e-3."""
FAR = 4096
"""Positions by which a text is moved; rotations are in float32, and round there by 1e-4."""
FAR_ROUNDING = 1e-2


TRIED_AT_ONCE = 30_000_000
"""Parameters; a larger model takes seconds, and memory that the planning machine may not have."""


def try_out(config: RunConfig, vocabulary_size: int) -> None:
    """Refuses a run of kind hf that cannot be built, or fails `check_architecture`.

    Raises:
        UserError: with the key, what was found, and what works instead.
    """
    if architecture_sizes(config.model, vocabulary_size).parameters > TRIED_AT_ONCE:
        return
    with torch.random.fork_rng():
        model = ArchitectureModel(config.model, vocabulary_size)
    check_architecture(model, vocabulary_size, config.train)


def check_architecture(model: ArchitectureModel, vocabulary_size: int, train: TrainConfig) -> None:
    """Refuses an architecture that looks ahead, or whose memory does not hold what was read.

    Args:
        model: with any weights; it stays as it is, and no random number is drawn.

    Raises:
        UserError: with the reason, and what works instead.
    """
    with _in_float64(model) as probe:
        tokens_BT = _tokens(vocabulary_size, probe)
        whole_BTV = _read(probe, tokens_BT, [tokens_BT.shape[1]], mem_len=0)
        if not _is_causal(probe, tokens_BT, whole_BTV, vocabulary_size):
            raise UserError(
                f"model.architecture: {model.name} sees tokens that come later",
                "choose a causal architecture, or set what makes it one in model.config",
            )
        if not train.recurrence:
            return
        reason = segments_differ(probe, tokens_BT, whole_BTV)
        if reason is None and train.memory_reset and _is_hybrid(probe, tokens_BT):
            raise UserError(
                f"train.memory_reset: {model.name} has both attention and a recurrent state",
                "drop it",
            )
    if reason is not None:
        raise UserError(
            f"train.recurrence: the memory of {model.name} cannot be carried: {reason}",
            "set train.recurrence to false",
        )


def segments_equal_one_pass(model: ArchitectureModel, vocabulary_size: int) -> bool:
    """Whether a text read in segments with memory gives the logits of one pass."""
    with _in_float64(model) as probe:
        tokens_BT = _tokens(vocabulary_size, probe)
        whole_BTV = _read(probe, tokens_BT, [tokens_BT.shape[1]], mem_len=0)
        return segments_differ(probe, tokens_BT, whole_BTV) is None


def segments_differ(model: ArchitectureModel, tokens_BT: Tensor, whole_BTV: Tensor) -> str | None:
    """Why reading in segments is not reading in one pass; None if it is.

    Args:
        whole_BTV: the logits of one pass.
    """
    if model.cache_argument is None:
        return "its forward pass takes no cache"
    config = model.module.config.get_text_config(decoder=True)
    strange = set(getattr(config, "layer_types", None) or ()) - {SLIDING, FULL}
    if model.attends and strange:
        return f"layers of type {', '.join(sorted(strange))} are not known here"
    length = tokens_BT.shape[1]
    try:
        parts_BTV = _read(model, tokens_BT, [SEGMENT] * SEGMENTS, mem_len=length)
    except Exception as error:  # whatever an architecture says to a cache that it cannot use
        return f"reading with a cache fails ({type(error).__name__}: {str(error)[:100]})"
    if _apart(parts_BTV, whole_BTV) > ROUNDING:
        apart = _apart(parts_BTV, whole_BTV)
        return (
            f"transformers drops a part of it in segments of several tokens (logits differ from "
            f"those of one pass by {apart:.1e} of their spread)"
        )
    if model.attends and not model.takes_positions:
        return "it cannot be told positions, which a memory of limited length needs"
    if model.takes_positions and not _only_distances_matter(model, tokens_BT, whole_BTV):
        return "its positions are absolute, so that those of memory and segment would mix"
    return None


@contextmanager
def _in_float64(model: ArchitectureModel) -> Iterator[ArchitectureModel]:
    """A copy of the model in float64 and evaluation mode; random sources stay as they are."""
    with torch.random.fork_rng(), torch.no_grad():
        yield copy.deepcopy(model).double().eval()


def _tokens(vocabulary_size: int, model: ArchitectureModel) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(vocabulary_size, (2, SEGMENT * SEGMENTS), generator=generator)
    return tokens_BT.to(next(model.parameters()).device)


def _read(model: ArchitectureModel, tokens_BT: Tensor, cuts: list[int], mem_len: int) -> Tensor:
    """Logits [B, T, V] of the tokens in segments of the given lengths."""
    state = model.initial_state(len(tokens_BT), AttentionSpan(mem_len=mem_len))
    logits = []
    for segment_BT in tokens_BT.split(cuts, dim=1):
        logits_BTV, state = model(segment_BT, state)
        logits.append(logits_BTV)
    return torch.cat(logits, dim=1)


def _is_causal(
    model: ArchitectureModel, tokens_BT: Tensor, whole_BTV: Tensor, vocabulary_size: int
) -> bool:
    changed_BT, half = tokens_BT.clone(), tokens_BT.shape[1] // 2
    changed_BT[:, half:] = (changed_BT[:, half:] + 1) % vocabulary_size
    other_BTV = _read(model, changed_BT, [changed_BT.shape[1]], mem_len=0)
    return _apart(other_BTV[:, :half], whole_BTV[:, :half]) <= ROUNDING


def _only_distances_matter(model: ArchitectureModel, tokens_BT: Tensor, whole_BTV: Tensor) -> bool:
    """Whether a text gives the same logits far from the beginning of its stream."""
    start = model.initial_state(len(tokens_BT), AttentionSpan(mem_len=0))
    try:
        moved_BTV, _ = model(tokens_BT, start.moved(FAR))
    except (IndexError, RuntimeError):  # of a table of positions that ends before
        return False
    return _apart(moved_BTV, whole_BTV) <= FAR_ROUNDING


def _is_hybrid(model: ArchitectureModel, tokens_BT: Tensor) -> bool:
    """Whether some tensors in memory are keys and others are not."""
    state = model.initial_state(len(tokens_BT), AttentionSpan(mem_len=SEGMENT))
    _, state = model(tokens_BT, state)
    kinds = {KEYS in layer for layer in state.layers.values()}
    return len(kinds) > 1


def _apart(one_BTV: Tensor, other_BTV: Tensor) -> float:
    """The largest difference of two logits, in standard deviations of all of them."""
    apart = (one_BTV - other_BTV).abs().max() / other_BTV.std()
    return float(apart.nan_to_num(nan=float("inf")))

"""Generates text token by token, drawn from the likeliest ones (top-k sampling)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.models.interface import LanguageModel
from txlbench.models.kv_cache import KVCache


@dataclass(frozen=True)
class Sampling:
    """Top-k sampling with a temperature (Dai et al. 2019, Appendix E: top 40, renormalised).

    Attributes:
        top_k: the likeliest tokens that are drawn from; None for all, 1 to take the likeliest.
        temperature: log-probabilities are divided by it.
    """

    top_k: int | None = 40
    temperature: float = 1.0

    def draw(self, log_probs_BV: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """One token [B, 1] a line; the generators, on its device, serve as many lines each.

        As `torch.multinomial` draws: the token of the largest p / e, where e is exponential.

        Raises:
            UserError: if the model's output is not a number.
        """
        vocabulary = log_probs_BV.shape[1]
        values, ids = log_probs_BV.topk(min(self.top_k or vocabulary, vocabulary))
        odds = torch.softmax(values.float() / self.temperature, dim=-1)
        if odds.isnan().any():
            raise UserError(
                "the model gives no probabilities: its output is not a number",
                "use another checkpoint; the training may have diverged",
            )
        noise = torch.empty_like(odds)
        for rows, generator in zip(noise.chunk(len(generators)), generators, strict=True):
            rows.exponential_(generator=generator)
        return ids.gather(1, odds.div_(noise).argmax(1, keepdim=True))


def generate(
    model: LanguageModel,
    prompts: NDArray[Any],
    span: AttentionSpan | None,
    segment: int,
    sampling: Sampling,
    generators: Sequence[torch.Generator],
) -> Iterator[list[int]]:
    """A token after each prompt, and the next ones, without end.

    Streams share the reading of the weights, and no stream's tokens depend on another's.

    Args:
        model: in evaluation mode and on the device of `generators`.
        prompts: token ids [B, N], at least one each.
        span: of attention, with memory that is carried from token to token; None where positions
            restart at every segment, and the newest tokens are read anew for each.
        segment: tokens of the prompts read at once, or the newest that are read anew.
        generators: one for each prompt.
    """
    tokens_BT = torch.from_numpy(prompts.astype(np.int64)).to(generators[0].device)
    if span is None:
        return _in_windows(model, tokens_BT, segment, sampling, generators)
    return _with_memory(model, tokens_BT, span, segment, sampling, generators)


@torch.inference_mode()
def _with_memory(
    model: LanguageModel,
    tokens_BT: Tensor,
    span: AttentionSpan,
    segment: int,
    sampling: Sampling,
    generators: Sequence[torch.Generator],
) -> Iterator[list[int]]:
    """Reads the prompts once, then a token a pass, beside the keys and values remembered."""
    state = model.evaluation_state(model.initial_state(len(tokens_BT), span))
    while True:
        for part_BT in tokens_BT.split(segment, dim=1):
            hidden_BTD, state = model.forward(part_BT, state)
        tokens_BT = sampling.draw(model.log_probs(hidden_BTD[:, -1]), generators)
        yield tokens_BT[:, 0].tolist()


@torch.inference_mode()
def _in_windows(
    model: LanguageModel,
    tokens_BT: Tensor,
    length: int,
    sampling: Sampling,
    generators: Sequence[torch.Generator],
) -> Iterator[list[int]]:
    """Reads the newest `length` tokens for each."""
    span = AttentionSpan(mem_len=0)
    state = model.evaluation_state(model.initial_state(len(tokens_BT), span))
    while True:
        tokens_BT = tokens_BT[:, -length:]
        hidden_BTD, state = model.forward(tokens_BT, state)
        drawn_B1 = sampling.draw(model.log_probs(hidden_BTD[:, -1]), generators)
        tokens_BT = torch.cat([tokens_BT, drawn_B1], dim=1)
        yield drawn_B1[:, 0].tolist()


AT_ONCE = 64
"""Tokens whose log-probabilities are computed at once: vocabularies are large."""


@torch.inference_mode()
def teacher_forced(
    model: LanguageModel,
    prompt: NDArray[Any],
    continuation: Sequence[int],
    span: AttentionSpan | None,
    segment: int,
    device: torch.device,
) -> Iterator[Tensor]:
    """Log-probabilities [n, V] of the tokens of `continuation`, some at a time, in order.

    Each is predicted from what `generate` had drawn it from, but by the plain pass without a
    cache, many in one pass where a cache would do, as keys can then be masked to the same.
    Arguments as there.
    """
    tokens = [*prompt.tolist(), *continuation]
    tokens_BT = torch.tensor([tokens], dtype=torch.int64, device=device)
    if span is None:
        yield from _forced_windows(model, tokens_BT, len(prompt), segment)
        return
    state: Any = model.initial_state(1, span)
    at_once = AT_ONCE if isinstance(model.evaluation_state(state), KVCache) else 1
    for part_BT in tokens_BT[:, : len(prompt)].split(segment, dim=1):
        hidden_BTD, state = model.forward(part_BT, state)
    yield model.log_probs(hidden_BTD[:, -1])
    rest_BT = tokens_BT[:, len(prompt) : -1]
    if at_once > 1 and not span.same_length:
        # One token a pass sees all that is remembered, and itself.
        state = replace(state, span=replace(span, mem_len=span.mem_len + 1, same_length=True))
    for part_BT in rest_BT.split(at_once, dim=1) if rest_BT.shape[1] else ():
        hidden_BTD, state = model.forward(part_BT, state)
        yield model.log_probs(hidden_BTD[0])


def _forced_windows(
    model: LanguageModel, tokens_BT: Tensor, first: int, length: int
) -> Iterator[Tensor]:
    """As `_in_windows` predicts them, the newest `length` tokens for each."""
    for place in range(first, tokens_BT.shape[1]):
        window_BT = tokens_BT[:, max(0, place - length) : place]
        hidden_BTD, _ = model.forward(window_BT, model.initial_state(1, AttentionSpan(mem_len=0)))
        yield model.log_probs(hidden_BTD[:, -1])

"""Generates text token by token, drawn from the likeliest ones (top-k sampling)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.models.interface import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """Top-k sampling with a temperature (Dai et al. 2019, Appendix E: top 40, renormalised).

    Attributes:
        top_k: the likeliest tokens that are drawn from; None for all, 1 to take the likeliest.
        temperature: log-probabilities are divided by it.
    """

    top_k: int | None = 40
    temperature: float = 1.0

    def draw(self, log_probs_BV: Tensor, generator: torch.Generator) -> Tensor:
        """One token [B, 1] a line; the generator lives on the device of the tensor."""
        vocabulary = log_probs_BV.shape[1]
        values, ids = log_probs_BV.topk(min(self.top_k or vocabulary, vocabulary))
        probabilities = torch.softmax(values.float() / self.temperature, dim=-1)
        return ids.gather(1, torch.multinomial(probabilities, 1, generator=generator))


def generate(
    model: LanguageModel,
    prompt: NDArray[Any],
    span: AttentionSpan | None,
    segment: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[int]:
    """Tokens after `prompt`, without end.

    Args:
        model: in evaluation mode and on the device of `generator`.
        prompt: token ids [N], at least one.
        span: of attention, with memory that is carried from token to token; None where positions
            restart at every segment, and the newest tokens are read anew for each.
        segment: tokens of the prompt read at once, or the newest that are read anew.
    """
    tokens = torch.from_numpy(prompt.astype(np.int64)).to(generator.device)[None]
    if span is None:
        return _in_windows(model, tokens, segment, sampling, generator)
    return _with_memory(model, tokens, span, segment, sampling, generator)


@torch.inference_mode()
def _with_memory(
    model: LanguageModel,
    tokens_BT: Tensor,
    span: AttentionSpan,
    segment: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[int]:
    """Reads the prompt once, then one token a pass, beside the keys and values remembered."""
    state = model.evaluation_state(model.initial_state(1, span))
    while True:
        for part_BT in tokens_BT.split(segment, dim=1):
            hidden_BTD, state = model.forward(part_BT, state)
        tokens_BT = sampling.draw(model.log_probs(hidden_BTD[:, -1]), generator)
        yield int(tokens_BT)


@torch.inference_mode()
def _in_windows(
    model: LanguageModel,
    tokens_BT: Tensor,
    length: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[int]:
    """Reads the newest `length` tokens for each."""
    state = model.evaluation_state(model.initial_state(1, AttentionSpan(mem_len=0)))
    while True:
        tokens_BT = tokens_BT[:, -length:]
        hidden_BTD, state = model.forward(tokens_BT, state)
        drawn = sampling.draw(model.log_probs(hidden_BTD[:, -1]), generator)
        tokens_BT = torch.cat([tokens_BT, drawn], dim=1)
        yield int(drawn)

"""Times a new token in evaluation: with a sliding window read anew, or with reused state."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from txlbench.config.base import AttentionSpan
from txlbench.evaluation.scoring import zero_memory
from txlbench.models.interface import LanguageModel

AT_LEAST = 16
"""New tokens of a stream in one timing: a single pass would be too short for the clock."""


@dataclass(frozen=True)
class Task:
    """Work that can be timed again and again.

    Attributes:
        tokens: new tokens that it handles.
    """

    tokens: int
    run: Callable[[], None]


@dataclass(frozen=True)
class Setting:
    """A model, and how many streams it reads side by side."""

    model: LanguageModel
    vocabulary_size: int
    batch_size: int
    device: torch.device

    def tokens(self, length: int) -> torch.Tensor:
        """Random ones [B, length]: speed does not depend on them."""
        shape = (self.batch_size, length)
        generator = torch.Generator().manual_seed(1)
        return torch.randint(self.vocabulary_size, shape, generator=generator).to(self.device)


def window_task(setting: Setting, attention_length: int, clamp_len: int | None = None) -> Task:
    """The newest `attention_length` tokens are read anew for one prediction: stride 1."""
    model, tokens = setting.model, setting.tokens(attention_length)
    span = AttentionSpan(mem_len=0, clamp_len=clamp_len)
    state = model.evaluation_state(model.initial_state(setting.batch_size, span))

    def run() -> None:
        hidden, _ = model.forward(tokens, state)
        model.log_probs(hidden[:, -1])

    return Task(setting.batch_size, run)


def reuse_task(setting: Setting, span: AttentionSpan, tgt_len: int, attends: bool) -> Task:
    """Segments of `tgt_len` tokens are read beside a full memory, all their losses taken.

    Args:
        attends: whether the model has keys to fill its memory with.
    """
    model, tokens = setting.model, setting.tokens(tgt_len + 1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    state: Any = model.initial_state(setting.batch_size, span)
    if attends:
        state = zero_memory(model, setting.batch_size, span)
    if attends and not state.tensors():  # a cache of transformers has no size before it is used
        with torch.no_grad():
            _, state = model.forward(setting.tokens(span.mem_len), state)
    state = model.evaluation_state(state)
    passes = -(-AT_LEAST // tgt_len)

    def run() -> None:
        nonlocal state
        for _ in range(passes):
            hidden, state = model.forward(inputs, state)
            model.losses(hidden, targets)

    return Task(setting.batch_size * tgt_len * passes, run)


@torch.no_grad()
def time_by_turns(
    tasks: Mapping[str, Task], rounds: int, warm_up: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds a token of every task in each round.

    The tasks take turns, so that a machine that changes its speed changes all of them. The first
    `warm_up` rounds are not counted; the clock waits until the device has finished.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(warm_up + rounds):
        for name, task in tasks.items():
            _wait(device)
            begin = time.perf_counter()
            task.run()
            _wait(device)
            if number >= warm_up:
                seconds[name].append((time.perf_counter() - begin) / task.tokens)
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

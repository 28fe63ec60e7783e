"""What evaluation remembers: keys and values of each layer, projected once and kept in a buffer."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from txlbench.models.interface import View
from txlbench.models.memory import known_after


@dataclass
class Cache:
    """The keys and values of the newest min(mem_len, seen) tokens; consumed by `forward`.

    They lie side by side, oldest first, in a buffer with room for as many again: new ones are
    written behind them, and only when it is full are the remembered ones moved to its front. So
    attention reads them in order without a copy, and a move costs little a token.

    Attributes:
        states_N2HBCK: keys and values of each layer, with room for C of them.
        view: how the model looks back.
        start, end: the places of those that are remembered.
        known_B: how many of these, the newest, each stream may still see; None for all of them.
        kept: what the encoding keeps between passes, such as projected positions.
    """

    states_N2HBCK: Tensor
    view: View
    start: int = 0
    end: int = 0
    known_B: Tensor | None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens that are remembered."""
        return self.end - self.start

    def clone(self) -> "Cache":
        """A copy that goes on by itself."""
        return dataclasses.replace(self, states_N2HBCK=self.states_N2HBCK.clone())

    def tensors(self) -> Mapping[str, Tensor]:
        remembered = self.states_N2HBCK[..., self.start : self.end, :]
        named = {f"layer{n}": layer.permute(2, 0, 1, 3, 4) for n, layer in enumerate(remembered)}
        return named if self.known_B is None else {**named, "known": self.known_B}

    def replace(self, tensors: Mapping[str, Tensor]) -> "Cache":
        layers = [tensors[f"layer{n}"] for n in range(len(self.states_N2HBCK))]
        states = torch.stack([layer.permute(1, 2, 0, 3, 4) for layer in layers])
        known_B = tensors.get("known")
        return dataclasses.replace(
            self, states_N2HBCK=states, start=0, end=states.shape[4], known_B=known_B
        )

    def forget(self, rows_B: Tensor) -> "Cache":
        """The same keys, hidden from those streams."""
        known_B = self.known_B
        if known_B is None:
            batch, device = self.states_N2HBCK.shape[3], self.states_N2HBCK.device
            known_B = torch.full((batch,), self.length, device=device)
        return dataclasses.replace(self, known_B=known_B.masked_fill(rows_B.to(known_B.device), 0))

    def make_room(self, queries: int, dtype: torch.dtype) -> None:
        """Sees to it that `queries` more tokens of that type can be written."""
        same = self.states_N2HBCK.dtype == dtype
        if same and self.end + queries <= self.states_N2HBCK.shape[4]:
            return
        room = 2 * (self.length + queries)
        states = self.states_N2HBCK
        if not same or room > states.shape[4]:
            states = states.new_empty(*states.shape[:4], room, states.shape[5], dtype=dtype)
        # Within one buffer the two do not overlap: it has room for twice as many.
        states[..., : self.length, :] = self.states_N2HBCK[..., self.start : self.end, :]
        self.states_N2HBCK, self.start, self.end = states, 0, self.length

    def write(self, layer: int, new_2HBTK: Tensor) -> Tensor:
        """Writes a segment's keys and values; returns them with the remembered: [2, H, B, S, K]."""
        if self.view.mem_len == 0:
            return new_2HBTK
        behind = self.end + new_2HBTK.shape[3]
        self.states_N2HBCK[layer, :, :, :, self.end : behind] = new_2HBTK
        return self.states_N2HBCK[layer, :, :, :, self.start : behind]

    def advance(self, queries: int) -> None:
        """Remembers the newest of what was written, as `memory.carried` does."""
        if self.view.mem_len == 0:
            return
        self.end += queries if self.view.stride is None else min(queries, self.view.stride)
        self.start = max(self.start, self.end - self.view.mem_len)
        self.known_B = known_after(self.known_B, queries, self.view, self.length)

"""What `recl` asks of each of its models."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.config.catalogue import Level
from txlbench.config.section import Split
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import (
    GivenPositions,
    Positions,
    check_given,
    choose_positions,
)
from txlbench.records.experiment_directory import RESULTS


@dataclass(frozen=True)
class Wanted:
    """What context losses are asked for; None stands for the model's own.

    Attributes:
        contexts: numbers of predecessors, ascending.
        tokens: predicted tokens, spread over the split; the usual number if not given.
        positions: [T], the predicted tokens themselves, where somebody else chose them.
        corpus: a catalogue's name or a text; the corpus a run was trained on if not given.
        level: what a token of a text is, where `corpus` is one.
        attention_length: keys each query sees, itself included; all of its window if not given.
        batch_size: windows read side by side; as many as fit if not given.
        checkpoint: best or last.
        results: where experiments lie.
    """

    contexts: tuple[int, ...]
    tokens: int | None = None
    positions: NDArray[np.int64] | None = field(default=None, compare=False)
    corpus: str | None = None
    level: Level | None = None
    split: Split = "test"
    attention_length: int | None = None
    batch_size: int | None = None
    device: str = "auto"
    checkpoint: str = "best"
    results: Path = RESULTS

    def positions_in(self, length: int, period: int) -> Positions | GivenPositions:
        """The predicted tokens of a split of `length` tokens; UserError if it lacks them."""
        if self.positions is None:
            return choose_positions(length, self.contexts, self.tokens, period)
        given = GivenPositions(self.positions)
        check_given(given, length, self.contexts)
        return given

    def __post_init__(self) -> None:
        if (
            not self.contexts
            or self.contexts[0] < 1
            or sorted({*self.contexts}) != [*self.contexts]
        ):
            raise UserError(
                f"--contexts: {', '.join(map(str, self.contexts)) or 'none'} found",
                "give ascending numbers of at least 1",
            )

"""What the user asks of `recl`, and what a model of a group is.

What `recl` asks of each of its models.
"""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import Level
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import (
    GivenPositions,
    Positions,
    check_given,
    choose_positions,
)
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.loss_file import LossFile


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


DEFAULT_CONTEXTS = tuple(range(100, 1001, 100))
"""Those of the paper's Figures 3 and 4; the paper gives neither its step nor its first context."""


@dataclass(frozen=True)
class ReclRequest:
    """What the user asked `recl` for.

    Attributes:
        groups: models of each group, as the user calls them.
        contexts: ascending; None for those of the loss files given, else `DEFAULT_CONTEXTS`.
        shares: values of r.
        tokens: positions scored; None for all of a loss file.
        positions: [T], those of the loss files given, at which models are scored too.
        corpus, level, split, device, batch_size, attention_length, checkpoint: of models that are
            read for their losses.
        out: the directory of results; default results/recl-<hash>.
        seed: random seed of the sign-flip test and the bootstrap.
        command: what was typed, for tables and figures.
    """

    groups: tuple[tuple[str, ...], ...]
    contexts: tuple[int, ...] | None = None
    shares: tuple[float, ...] = (0.1, 0.5, 1.0)
    threshold: float = 0.01
    tokens: int | None = None
    positions: NDArray[np.int64] | None = field(default=None, compare=False)
    corpus: str | None = None
    level: Level | None = None
    split: Split | None = None
    device: str = "auto"
    batch_size: int | None = None
    attention_length: int | None = None
    checkpoint: str = "best"
    out: Path | None = None
    seed: int = 0
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:  # NaN passes other comparisons
            raise UserError(f"--threshold {self.threshold}", "give a number between 0 and 1")


@dataclass(frozen=True)
class Subject:
    """A model of a group: its losses, and the paper's numbers where an experiment's row has them.

    Attributes:
        reference: what the user called it.
        paper: such as {"recl_r0.1": 900}.
        title: what tables and figures call it.
        with_resets: losses of the same model trained with memory resets, where there is one.
    """

    reference: str
    losses: LossFile
    paper: Mapping[str, float | str] = field(default_factory=dict)
    title: str = ""
    with_resets: LossFile | None = None

    def is_same_model(self, other: "Subject") -> bool:
        """Whether both are one file, or equal losses of equal weights."""
        ours, theirs = self.losses, other.losses
        if None not in (ours.path, theirs.path) and _resolved(ours) == _resolved(theirs):
            return True
        return (
            ours.model is not None
            and ours.model == theirs.model
            and np.array_equal(ours.losses, theirs.losses)
        )


def _resolved(file: LossFile) -> Path | None:
    return file.path and file.path.resolve()

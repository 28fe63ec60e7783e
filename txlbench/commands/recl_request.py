"""The request of `recl`, and a model of a group with its losses."""

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.model_ref import ModelRef
from txlbench.commands.texts import ScoredText
from txlbench.config.base import Part
from txlbench.config.catalogue import Level
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import (
    GivenPositions,
    Positions,
    check_given,
    choose_positions,
)
from txlbench.records.loss_file import LossFile

DEFAULT_CONTEXTS = tuple(range(100, 1001, 100))
"""Contexts of the paper's Figures 3 and 4, which give neither their step nor the first one."""


Progress = Callable[[str, int, int], None]
"""Called with the model being read, and the windows read and to be read of all models."""


@dataclass(frozen=True)
class ReclRequest:
    """A call of `recl`, or of `truth`, as the user typed it.

    Attributes:
        groups: models of each group, as the user calls them.
        contexts: ascending; None for those of the loss files given, else `DEFAULT_CONTEXTS`.
        shares: values of r.
        tokens: positions scored; None for all of a loss file.
        positions: [T], those of the loss files given, at which models are scored too.
        corpus, level, split, device, batch_size, attention_length, checkpoint: of models that are
            read for their losses; None for the model's own.
        sinks: first keys of a window that queries see besides the nearest; of pretrained models.
        precision: fp32 or bf16, of pretrained models.
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
    split: Part | None = None
    device: str = "auto"
    batch_size: int | None = None
    attention_length: int | None = None
    sinks: int | None = None
    checkpoint: str = "best"
    precision: str = "fp32"
    out: Path | None = None
    seed: int = 0
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))

    def __post_init__(self) -> None:
        if not all(self.groups):
            raise UserError("--models: a group without a model", "name at least one")
        if not 0 < self.threshold < 1:  # NaN passes other comparisons
            raise UserError(f"--threshold {self.threshold}", "give a number between 0 and 1")
        if self.sinks is not None and self.attention_length is None:
            raise UserError(
                f"--sinks {self.sinks}: every query sees the first tokens without it",
                "give --attention-length too",
            )
        given = self.contexts
        if given is not None and (not given or given[0] < 1 or sorted({*given}) != [*given]):
            raise UserError(
                f"--contexts: {', '.join(map(str, given)) or 'none'} found",
                "give ascending numbers of at least 1",
            )

    def positions_in(self, length: int, period: int) -> Positions | GivenPositions:
        """The predicted tokens of a split of `length` tokens; UserError if it lacks them."""
        contexts = self.contexts or DEFAULT_CONTEXTS
        if self.positions is None:
            return choose_positions(length, contexts, self.tokens, period)
        given = GivenPositions(self.positions)
        check_given(given, length, contexts)
        return given


@dataclass(frozen=True)
class Subject:
    """A model of a group: its losses, and the paper's numbers where an experiment's row has them.

    Attributes:
        reference: what the user called it.
        paper: such as {"recl_r0.1": 900}.
        title: what tables and figures call it.
        with_resets: losses of the same model trained with memory resets, where there is one.
        ref, text: the model and the text it was scored on; None where a loss file was given, and
            no text where several tokenizers share it.
    """

    reference: str
    losses: LossFile
    paper: Mapping[str, float | str] = field(default_factory=dict)
    title: str = ""
    with_resets: LossFile | None = None
    ref: ModelRef | None = None
    text: ScoredText | None = None

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

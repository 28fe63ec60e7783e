"""Whether losses of several models may be compared: same tokens, contexts and vocabulary."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.records.loss_file import LossFile

REMEDY = "models are compared on the same tokens at the same contexts only"
GIVEN = ("corpus", "split", "vocabulary")


def check_agreement(files: Sequence[LossFile]) -> None:
    """Refuses (UserError) files that differ in anything that is given, saying what differs."""
    for file in files[1:]:
        difference = _difference(files[0], file)
        if difference:
            raise UserError(f"{file.title}: {difference} in {files[0].title}", REMEDY)
    for name in GIVEN:
        said = [file for file in files if getattr(file, name) is not None]
        for file in said[1:]:
            ours, theirs = getattr(file, name), getattr(said[0], name)
            if ours != theirs:
                raise UserError(
                    f"{file.title}: {name} {ours!r}, but {theirs!r} in {said[0].title}", REMEDY
                )


def check_contexts(files: Sequence[LossFile]) -> None:
    """Refuses (UserError) files of several groups that differ in their contexts."""
    for file in files[1:]:
        difference = _other_contexts(files[0], file)
        if difference:
            raise UserError(
                f"{file.title}: {difference} in {files[0].title}, of another group",
                "give --contexts that all have, or measure the groups one by one",
            )


def _other_contexts(one: LossFile, other: LossFile) -> str | None:
    if np.array_equal(one.contexts, other.contexts):
        return None
    return f"contexts {brief(other.contexts)}, but {brief(one.contexts)}"


def _difference(one: LossFile, other: LossFile) -> str | None:
    """What of the arrays differs, as "<what `other` has>, but <what `one` has>"."""
    contexts = _other_contexts(one, other)
    if contexts:
        return contexts
    ours, theirs = other.positions, one.positions
    if len(ours) != len(theirs):
        return f"{len(ours):,} positions, but {len(theirs):,}"
    differing = np.flatnonzero(ours != theirs)
    if differing.size:
        first = differing[0]
        return (
            f"{differing.size:,} of {len(ours):,} positions differ, the first is {ours[first]}, "
            f"but {theirs[first]}"
        )
    return None


def brief(numbers: NDArray[Any]) -> str:
    """Numbers in a message: all of a few, else first and last."""
    if len(numbers) <= 12:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} to {numbers[-1]} ({len(numbers)} of them)"

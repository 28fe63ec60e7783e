"""How the company changes a model's RECL: the group shares its baseline, so every model counts."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from txlbench.evaluation.recl.gains import gains
from txlbench.evaluation.recl.group import Group, Terms

LARGEST = 4
"""Models."""


def subgroups(group: Group, terms: Terms) -> list[dict[str, Any]]:
    """One line for each model and share of every smaller group of up to four models."""
    lines = []
    for members in _members(len(group.names)):
        found = gains(group.losses[list(members)], terms.shares).relative >= terms.threshold
        names = [group.names[model] for model in members]
        for counts, model in zip(found, members, strict=True):
            for r, steps in zip(terms.shares, counts, strict=True):
                end = group.walk(model, steps)
                line = {"models": names, "model": group.names[model], "r": r}
                lines.append({**line, "recl": end.length, "capped": end.capped})
    return lines


def _members(models: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, min(LARGEST, models - 1) + 1):
        yield from combinations(range(models), size)

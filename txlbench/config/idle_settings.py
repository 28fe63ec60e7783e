"""Settings of an experiment file that would do nothing: refused, or told where rows differ."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from txlbench.config.loading import Document, Keys, Raw
from txlbench.config.model import ARCHITECTURE_KEYS
from txlbench.errors import UserError

if TYPE_CHECKING:
    from txlbench.config.grid import ExperimentFile, Line


def overridden(overrides: Iterable[str], rows: Sequence[tuple[str, Raw]]) -> Iterator[str]:
    """Warns of settings of the base that some rows make themselves.

    Raises:
        UserError: for one that every row makes, which would do nothing.
    """
    for key in (override.partition("=")[0] for override in overrides):
        own = [
            label
            for label, settings in rows
            if key in settings or key.partition(".")[0] in settings
        ]
        if own and len(own) == len(rows):
            raise UserError(f"--set {key}: every row sets it", "choose rows with --only")
        if own:
            yield f"--set {key}: these rows set it themselves: {', '.join(own)}"


MEMORY_KEYS = (
    *("model.memory", "model.compress_rate", "model.sinks"),
    *("train.random_mem_len", "train.memory_reset"),
)
"""Keys that count as left out where there is no such memory."""


def without_effect(base: Raw, lines: Sequence["Line"]) -> Iterator[str]:
    """Warns of settings of memory in rows that have none, or in the base where no row has any.

    They are not refused, since products of a grid have such rows; equal ones share a run.
    """
    for key in MEMORY_KEYS:
        section, name = key.split(".")
        below = base.get(section) or {}
        idle = [
            line
            for line in lines
            if line.settings.get(key, below.get(name))
            not in (None, "none", getattr(getattr(line.configs[0], section), name))
        ]
        own = [line.label for line in idle if key in line.settings]
        if own:
            yield f"{key}: no effect in these rows, which have no such memory: {', '.join(own)}"
        elif idle and len(idle) == len(lines):
            yield f"{key}: no effect, as no row has such a memory"


def meaningless(
    file: "ExperimentFile",
    base: Raw,
    lines: Sequence["Line"],
    places: Mapping[str, Keys],
    document: Document,
) -> Iterator[str]:
    """Refuses keys of `model` that mean nothing to an architecture of transformers (kind hf).

    That is, in a row's own settings and in tuning, in the grid where all its rows are such, and in
    the base where all rows are. A grid with other rows warns, as its products have such rows.
    """
    foreign = {line.label for line in lines if line.configs[0].model.kind == "hf"}
    grid = {label for label, keys in places.items() if keys == ("grid",)}
    wrong: list[Keys] = [
        (*places[line.label], key)
        for line in lines
        for key in line.settings
        if line.label in foreign - grid and _means_nothing(key)
    ]
    in_grid = [key for key in file.grid if grid & foreign and _means_nothing(key)]
    wrong += [("tune", key) for key in file.tune if foreign and _means_nothing(key)]
    if grid <= foreign:
        wrong += [("grid", key) for key in in_grid]
    if len(foreign) == len(lines):
        wrong += [("model", key) for key in base.get("model", {}) if _means_nothing(f"model.{key}")]
    for keys in wrong:
        remedy = "drop it; an architecture's own keys go into model.config"
        raise document.error(keys, "means nothing to rows of kind hf", remedy)
    for key in in_grid:
        yield f"{key}: no effect in rows of kind hf"


def _means_nothing(key: str) -> bool:
    """Whether a dotted key is one of `model` that kind hf does not have."""
    section, _, name = key.partition(".")
    return section == "model" and name.partition(".")[0] not in ARCHITECTURE_KEYS

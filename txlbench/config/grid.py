"""Expands an experiment file into rows and runs: grid, exclusions, rows, seeds.

Equal configurations share one run.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from txlbench.config.base import DocumentedKey, Section, documented_fields
from txlbench.config.identity import run_id
from txlbench.config.idle_settings import meaningless, overridden, without_effect
from txlbench.config.loading import (
    Document,
    Keys,
    Raw,
    key_remedy,
    parse_yaml,
    read_yaml,
    set_dotted,
    validate,
)
from txlbench.config.measurements import attention_lengths, skipped_lengths
from txlbench.config.run_config import RunConfig
from txlbench.config.search_range import SearchRange, Tuned, check_search, search_space
from txlbench.errors import MissingPlugin, UserError, suggestion

BASE_KEYS = ("corpus", "model", "train", "evaluate")
VARIED = ("grid", "exclude", "rows")
"""Keys that make rows."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_RULE = "a name has letters, digits, '.', '_' and '-', and begins with a letter or digit"


class Row(Section):
    """One line of the result table as the file gives it.

    Attributes:
        label: its name in tables and plots; default what it sets.
        set: dotted keys over the base configuration.
        paper: the paper's numbers for it, by column name.
        note: what a reader should know of the row, such as a choice the paper leaves open.
        tuned: how `--tune-trials` chose a part of what is set; written by `ablate`.
    """

    label: str | None = None
    set: Raw = Field(default_factory=dict)
    paper: dict[str, float | str] = Field(default_factory=dict)
    note: str | None = None
    tuned: Tuned | None = None


class ExperimentFile(Section):
    """The top level of an experiment file.

    Attributes:
        name: of the experiment and of its directory under results/.
        description: a line for readers.
        corpus, model, train, evaluate: the base configuration, which rows and grid change.
        seeds: random seeds; each row is trained once for each.
        grid: dotted keys with lists of values, whose Cartesian product gives rows.
        exclude: combinations of the grid to leave out, as mappings of dotted keys to values.
        rows: further rows, with label, set, paper and note.
        tune: dotted keys with what `--tune-trials` searches for each row: [LOW, HIGH] (on a log
            scale if HIGH is 10 times LOW or more), {low, high, log}, or {choices: [...]}.
    """

    name: str = Field(pattern=NAME)
    description: str | None = None
    corpus: Any
    model: Raw = Field(default_factory=dict)
    train: Raw = Field(default_factory=dict)
    evaluate: Raw = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field((1,), strict=False, min_length=1)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    exclude: tuple[Raw, ...] = Field((), strict=False)
    rows: tuple[Row, ...] = Field((), strict=False)
    tune: Raw = Field(default_factory=dict)

    @field_validator("seeds")
    @classmethod
    def _once_each(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """A seed given twice is one run, not a second sample."""
        return tuple(dict.fromkeys(seeds))


def documented_keys() -> Iterator[DocumentedKey]:
    """Every key of an experiment file; those of a run's sections by their dotted names."""
    for each in documented_fields(ExperimentFile):
        if each.name not in BASE_KEYS:
            yield each
    yield from documented_fields(Row, "rows.")
    yield from (each for each in documented_fields(RunConfig) if each.name != "seed")


@dataclass(frozen=True)
class Line:
    """One line of the result table: a label and its runs, one a seed.

    Attributes:
        settings: what it sets over the base configuration, by dotted key.
    """

    label: str
    configs: tuple[RunConfig, ...]
    paper: Mapping[str, float | str]
    note: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tuned: Tuned | None = None

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run_id(config) for config in self.configs)

    def matches(self, pattern: str) -> bool:
        """Whether the label or one of the run ids matches a shell pattern."""
        return any(fnmatchcase(name, pattern) for name in (self.label, *self.run_ids))


@dataclass(frozen=True)
class Experiment:
    """An experiment file expanded: lines of the table, and warnings about what is skipped.

    Attributes:
        search: what may be tuned, by dotted key.
        unknown: by label, why rows are no lines: they need a plug-in that was not given. The other
            rows can be had without it.
    """

    name: str
    lines: tuple[Line, ...]
    raw: Raw
    warnings: tuple[str, ...] = ()
    search: Mapping[str, SearchRange] = field(default_factory=dict)
    unknown: Mapping[str, MissingPlugin] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name, and the description if the file has one."""
        description = self.raw.get("description")
        return f"{self.name}: {description}" if description else self.name

    def runs(self) -> dict[str, RunConfig]:
        """The distinct runs by id; equal configurations share one."""
        return {
            identity: config
            for line in self.lines
            for identity, config in zip(line.run_ids, line.configs, strict=True)
        }

    def only(self, patterns: Iterable[str]) -> "Experiment":
        """The lines whose label equals a pattern, else whose label or run id matches it.

        Raises:
            UserError: for a pattern that matches none, or a row that needs a missing plug-in.
        """
        chosen: set[str] = set()
        for pattern in patterns:
            exact = {pattern} & {*(line.label for line in self.lines), *self.unknown}
            found = exact or {
                *(line.label for line in self.lines if line.matches(pattern)),
                *(label for label in self.unknown if fnmatchcase(label, pattern)),
            }
            if not found:
                known = ", ".join(repr(line.label) for line in self.lines)
                raise UserError(f"--only {pattern}: no row matches", f"rows: {known}")
            chosen |= found
        for label in self.unknown:
            if label in chosen:
                raise self.unknown[label]
        lines = tuple(line for line in self.lines if line.label in chosen)
        return replace(self, lines=lines)

    def whole(self) -> "Experiment":
        """Itself; MissingPlugin if a row of it needs a plug-in that was not given."""
        for missing in self.unknown.values():
            raise missing
        return self

    def line(self, label: str) -> Line | None:
        """The line of that label, None if there is none; MissingPlugin if it needs a plug-in."""
        if label in self.unknown:
            raise self.unknown[label]
        return next((line for line in self.lines if line.label == label), None)

    def with_settings(
        self, chosen: Mapping[str, Mapping[str, Any]], tuned: Mapping[str, Tuned] | None = None
    ) -> "Experiment":
        """The experiment whose lines set more, by label: an ordinary file with a row for each.

        Raises:
            UserError: if what is set cannot be.
        """
        raw = {key: value for key, value in self.raw.items() if key not in (*VARIED, "tune")}
        rows = [_as_row(line, chosen.get(line.label, {}), tuned or {}) for line in self.lines]
        return expand(Document(f"{self.name} as tuned", {**raw, "rows": rows}))


def load_experiment(path: Path, overrides: Sequence[str] = (), partial: bool = False) -> Experiment:
    """Reads and expands the experiment file at `path`.

    Args:
        overrides: `key=value` settings over the base configuration, as of `--set`.
        partial: rows that need a plug-in which was not given are left out, unless all do.

    Raises:
        UserError: for any key or combination that cannot be, with its place and the remedy.
    """
    return expand(read_yaml(path), overrides, partial)


def expand(document: Document, overrides: Sequence[str] = (), partial: bool = False) -> Experiment:
    """Expands a parsed experiment file; see `load_experiment`."""
    if not isinstance(document.value, dict):
        raise document.error((), "not an experiment file", "it needs keys such as name and corpus")
    raw: Raw = deepcopy(document.value)
    for override in overrides:
        _apply_override(raw, override)
    given = (override.partition("=")[0] for override in overrides)
    document = replace(document, overridden=frozenset(tuple(key.split(".")) for key in given))
    file = validate(ExperimentFile, raw, document)
    base = {key: raw[key] for key in BASE_KEYS if key in raw}
    if not (file.rows or file.grid):
        validate(RunConfig, base, document)
    rows = list(_rows(file, document))
    warnings = [*overridden(overrides, [(label, settings) for label, settings, *_ in rows])]
    lines: list[Line] = []
    places: dict[str, Keys] = {}
    unknown: dict[str, MissingPlugin] = {}
    for label, settings, row, keys in rows:
        if label in (*(line.label for line in lines), *unknown):
            raise document.error(keys[:2], f"two rows are called '{label}'", "rename one")
        try:
            configs = tuple(
                _resolve(base, settings, seed, label, keys, document) for seed in file.seeds
            )
        except MissingPlugin as missing:
            if not partial:
                raise
            unknown[label] = missing
            warnings.append(f"left out, as a plug-in is not given: {missing}")
            continue
        skipped = skipped_lengths(configs[0])
        if skipped:
            longest = max(attention_lengths(configs[0]))
            warnings.append(
                f"row '{label}': attention lengths above {longest} are skipped, as "
                f"{configs[0].model.name} has positions for {longest} only"
            )
        lines.append(Line(label, configs, row.paper, row.note, settings, row.tuned))
        places[label] = keys
    if not unknown:
        warnings += without_effect(base, lines)
    _check_exclusions(file, document)  # once the grid's own keys and values are known to be right
    if not lines:
        if unknown:
            raise next(iter(unknown.values()))
        raise document.error(("exclude",), "leaves no row", "drop an exclusion, or add rows")
    warnings += meaningless(file, base, lines, places, document)
    search = search_space(file.tune, document)
    for line in lines:
        fault = functools.partial(_tuning_fault, base, line, file.seeds[0], document)
        warnings += [f"row '{line.label}': {each}" for each in check_search(search, fault)]
    return Experiment(file.name, tuple(lines), raw, tuple(warnings), search, unknown)


def _tuning_fault(
    base: Raw, line: Line, seed: int, document: Document, tuned: Mapping[str, Any]
) -> UserError | None:
    """What is wrong with a line that takes these tuned values; None if nothing."""
    try:
        _resolve(base, {**line.settings, **tuned}, seed, line.label, ("tune",), document)
    except UserError as error:
        return error
    return None


def _as_row(line: Line, chosen: Mapping[str, Any], tuned: Mapping[str, Tuned]) -> Raw:
    """The row of an experiment file that gives `line`, with what was chosen for it."""
    found = tuned.get(line.label, line.tuned)
    row: Raw = {"label": line.label, "set": {**line.settings, **chosen}}
    more = {"paper": dict(line.paper), "note": line.note, "tuned": found and found.model_dump()}
    return row | {key: value for key, value in more.items() if value}


def _section(key: str) -> str:
    return key.partition(".")[0]


def _apply_override(raw: Raw, override: str) -> None:
    """Applies one `key=value`; rows and grid cannot be set, they are what varies."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override}: not KEY=VALUE", "for example train.max_step=100")
    top = _section(key)
    allowed = (*BASE_KEYS, "seeds", "name")
    if top not in allowed:
        raise UserError(f"--set {key}: unknown key '{top}'", key_remedy(top, allowed))
    if key in BASE_KEYS and key != "corpus":
        raise UserError(f"--set {key}: a whole section", f"set its keys one by one, as {key}.KEY")
    set_dotted(raw, key, parse_yaml(text, f"--set {key}").value, "--set")


def _rows(file: ExperimentFile, document: Document) -> Iterable[tuple[str, Raw, Row, Keys]]:
    """Yields (label, settings, row, where it stands) for every row, the grid's first."""
    yield from _grid(file, document)
    for index, row in enumerate(file.rows):
        yield row.label or _name_of(row.set), row.set, row, ("rows", index, "set")
    if not file.rows and not file.grid:
        yield file.name, {}, Row(), ()


def _grid(file: ExperimentFile, document: Document) -> Iterable[tuple[str, Raw, Row, Keys]]:
    """The Cartesian product of the grid without what `exclude` matches."""
    for key, values in file.grid.items():
        if not values:
            raise document.error(("grid", key), "has no values", "give at least one, or drop it")
        shown = [_show(value) for value in values]
        for index, value in enumerate(shown):
            if value in shown[:index]:
                raise document.error(("grid", key, index), f"{value} given twice", "drop one")
    for index, pattern in enumerate(file.exclude):
        if not pattern:
            raise document.error(("exclude", index), "excludes everything", "name keys, or drop it")
    for combination in itertools.product(*file.grid.values()) if file.grid else ():
        settings = dict(zip(file.grid, combination, strict=True))
        if any(pattern.items() <= settings.items() for pattern in file.exclude):
            continue
        yield _name_of(settings), settings, Row(), ("grid",)


def _check_exclusions(file: ExperimentFile, document: Document) -> None:
    """Refuses an exclusion that excludes nothing."""
    for index, pattern in enumerate(file.exclude):
        for key, value in pattern.items():
            place: Keys = ("exclude", index, key)
            if key not in file.grid:
                remedy = suggestion(key, file.grid) if file.grid else "there is no grid; drop it"
                raise document.error(place, "not a key of the grid", remedy)
            if value not in file.grid[key]:
                known = suggestion(str(value), map(str, file.grid[key]))
                raise document.error(place, f"{value!r} is not in the grid", known)


def _resolve(
    base: Raw,
    settings: Raw,
    seed: int,
    label: str,
    keys: Keys,
    document: Document,
) -> RunConfig:
    """The configuration of one run: base, then the row's settings, then the seed."""
    raw = deepcopy(base)
    raw["seed"] = seed
    for key, value in settings.items():
        section, *below = key.split(".")
        if section not in BASE_KEYS:
            raise document.error((*keys, key), "not a setting", key_remedy(section, BASE_KEYS))
        if not below and section != "corpus":
            raise document.error((*keys, key), "a whole section", f"set single keys: {key}.KEY")
        set_dotted(raw, key, value, document.where((*keys, key)))
    return validate(RunConfig, raw, _pointing(document, settings, keys), f" (row '{label}')")


def _pointing(document: Document, settings: Raw, keys: Keys) -> Document:
    """A document whose keys that the row sets, and the sections they are in, point at the row."""
    lines = dict(document.lines)
    own = {tuple(dotted.split(".")): dotted for dotted in settings}
    for parts, dotted in own.items():
        place = document.lines.get((*keys, dotted), document.lines.get(keys))
        if place is not None:
            lines.update({parts[:end]: place for end in range(len(parts) + 1)})
    return Document(
        document.source, document.value, lines, overridden=document.overridden - own.keys()
    )


def _name_of(settings: Raw) -> str:
    """A label from what a row sets: `encoding=xl recurrence=true`."""
    parts = [f"{key.split('.')[-1]}={_show(value)}" for key, value in settings.items()]
    return " ".join(parts) or "base"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

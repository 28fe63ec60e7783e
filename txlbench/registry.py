"""Names for things that are loaded only when asked for, with a suggestion for a misspelt name."""

import difflib
import importlib
from collections.abc import Iterable, Mapping

from txlbench.errors import UserError


def suggestion(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown `name`: the nearest known spelling and the list of all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    start = f"did you mean '{near[0]}'? " if near else ""
    return f"{start}known: {', '.join(known)}"


def load_class(target: str) -> type:
    """Imports `package.module:Class`."""
    module, _, attribute = target.partition(":")
    loaded: type = getattr(importlib.import_module(module), attribute)
    return loaded


class Registry:
    """Maps a name to `package.module:attribute`; the module is imported at the first `load`.

    Args:
        kind: what the names name, for messages ("encoding", "corpus").
        targets: the entries known from the start.
    """

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets: dict[str, str] = dict(targets)

    def names(self) -> list[str]:
        return list(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def load(self, name: str) -> type:
        """The class registered under `name`; UserError with the nearest spelling if unknown."""
        if name not in self._targets:
            raise UserError(f"unknown {self.kind} '{name}'", suggestion(name, self._targets))
        return load_class(self._targets[name])

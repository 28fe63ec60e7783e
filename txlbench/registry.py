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


class Registry:
    """Maps a name to `package.module:attribute`; the module is imported at the first `load`.

    Args:
        kind: what the names name, for messages ("encoding", "corpus").
        targets: the entries known from the start.
    """

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets: dict[str, str] = dict(targets)

    def register(self, name: str, target: str) -> None:
        """Adds an entry; a name that is taken by another target is refused."""
        if self._targets.get(name, target) != target:
            raise UserError(
                f"{self.kind} '{name}' is already registered as {self._targets[name]}",
                "choose another name",
            )
        self._targets[name] = target

    def names(self) -> list[str]:
        return list(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def load(self, name: str) -> type:
        """The class registered under `name`; UserError with the nearest spelling if unknown."""
        if name not in self._targets:
            raise UserError(f"unknown {self.kind} '{name}'", suggestion(name, self._targets))
        module, _, attribute = self._targets[name].partition(":")
        loaded: type = getattr(importlib.import_module(module), attribute)
        return loaded

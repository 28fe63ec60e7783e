"""Measures how much context language models use, and which design choices give it to them.

For notebooks: `load`, `evaluate`, `context_losses`, `recl`, `context`, `probe`, `attention`,
`ablate`, `results` and `plugin`, which are described in `txlbench.api` and loaded when they are
first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlbench.api import (
        ablate,
        attention,
        context,
        context_losses,
        evaluate,
        load,
        plugin,
        probe,
        recl,
        results,
    )
    from txlbench.errors import UserError

__version__ = "0.1.0"
__all__ = [
    "UserError",
    "ablate",
    "attention",
    "context",
    "context_losses",
    "evaluate",
    "load",
    "plugin",
    "probe",
    "recl",
    "results",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'txlbench' has no attribute {name!r}")
    import importlib

    place = "txlbench.errors" if name == "UserError" else "txlbench.api"
    return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

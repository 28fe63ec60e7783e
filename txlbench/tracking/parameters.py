"""A run's configuration as MLflow takes it: parameters that never change, tags that may."""

import json
from collections.abc import Iterator
from typing import Any

from txlbench.config.run import RunConfig
from txlbench.config.section import Section

LONGEST_VALUE = 500
"""Characters that every MLflow server since the first accepts; the artifact has the rest."""


def parameters_of(config: RunConfig) -> dict[str, str]:
    """What decides the run, by dotted key: MLflow lets nobody change a parameter."""
    return {name: text for name, text, decides in _flatten(config) if decides}


def settings_of(config: RunConfig) -> dict[str, str]:
    """What may change while the run stays the same, such as how it is evaluated: tags."""
    return {name: text for name, text, decides in _flatten(config) if not decides}


def _flatten(config: RunConfig) -> Iterator[tuple[str, str, bool]]:
    """(dotted key, value, whether it is part of the run's identity)."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if not isinstance(value, Section):
            yield name, _text(value), True
            continue
        for key, item in value.model_dump(mode="json").items():
            decides = name != "evaluate" and key not in value.UNHASHED
            yield f"{name}.{key}", _text(item), decides


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."

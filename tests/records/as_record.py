"""Records and log lines from plain data, as another version or a stranger may have left them."""

import json
from pathlib import Path
from typing import Any, TypeVar

from txlbench.records.schema import Record

R = TypeVar("R", bound=Record)


def as_record(model: type[R], content: Any) -> R:
    """The record that a file with this content is read as."""
    return model.model_validate_json(json.dumps(content))


def append_line(path: Path, **values: Any) -> None:
    """Appends one line to a file of JSON lines."""
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")

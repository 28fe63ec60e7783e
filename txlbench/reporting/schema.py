"""Reading a JSON file of a schema that this version writes."""

from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.files import read_json


def read_of_schema(path: Path, schema: str) -> dict[str, Any]:
    """The object in `path`; UserError if it is not one of this schema."""
    try:
        content = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give a file that can be read") from None
    found = content.get("schema") if isinstance(content, dict) else None
    if found != schema:
        raise UserError(f"{path}: schema {found!r} found", f"{schema} is read; make the file anew")
    result: dict[str, Any] = content
    return result

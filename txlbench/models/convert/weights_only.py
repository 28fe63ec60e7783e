"""Files of torch.save, read without executing anything in them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from txlbench.errors import UserError

REFUSED = re.compile(r"GLOBAL (\S+)")


class Inert:
    """Stands in for a class of the file: keeps what was stored as attributes and does nothing."""


NOTHING: Mapping[str, Any] = {}


def load(path: Path, known: Mapping[str, Any] = NOTHING, file: BinaryIO | None = None) -> Any:
    """What `path` holds, with tensors on the CPU.

    Args:
        known: what full names of classes and functions in the file stand for. Everything else
            that is neither a tensor nor plain data is refused by torch's weights-only loader.
        file: the bytes to read in place of those in `path`.

    Raises:
        UserError: naming the file, and the class or function that it would have called.
    """
    names: list[Any] = [(value, name) for name, value in known.items()]
    try:
        with torch.serialization.safe_globals(names):
            return torch.load(file or path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "check the path") from error
    except Exception as error:  # of many kinds, from damaged bytes
        raise _refusal(path, error) from error


def _refusal(path: Path, error: Exception) -> UserError:
    refused = REFUSED.search(str(error))
    if refused is None:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return UserError(f"{path}: not a readable torch file ({reason})", "get it again")
    return UserError(
        f"{path}: it would call {refused[1]}, which a model has no need of; nothing was executed",
        "save the model's state dict instead, with the code that wrote the file",
    )

"""Files of torch.save, read without executing anything in them.

Files of torch before 1.6 are made readable for the weights-only loader. Such a file is a row of
pickles and then the storages. Each class of a module stands in it as ("module", class, source file,
source), a persistent id that the loader refuses. Here the bytes are edited, opcode by opcode and
executing none, so that of each id the class alone remains.
"""

import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from txlbench.errors import UserError

REFUSED = re.compile(r"GLOBAL (\S+)")


class Inert:
    """Stands in for a class of the file: keeps what was stored as attributes and does nothing."""


NOTHING: Mapping[str, Any] = {}


def load(path: Path, known: Mapping[str, Any] = NOTHING, file: BinaryIO | None = None) -> Any:
    """Loads `path` with torch's weights-only loader, tensors on the CPU.

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


HOLDERS = ("model", "state_dict", "model_state", "model_state_dict")
"""Keys under which training programs keep the weights beside other things."""

WRAPPERS = ("module.", "_orig_mod.")
"""What wrappers put before each name: of parallel and half-precision modules, of compiled ones."""


def weights_within(content: Any) -> Any:
    """The model or state dict in what `torch.save` wrote, taken out of a dict around it."""
    if isinstance(content, dict):
        for key in HOLDERS:
            if isinstance(content.get(key), dict | Inert):
                return weights_within(content[key])
    return content


def without_wrappers(name: str) -> str:
    """The name of a weight without what wrappers put before it."""
    for wrapper in WRAPPERS:
        if name.startswith(wrapper):
            return without_wrappers(name.removeprefix(wrapper))
    return name


def is_state_dict(content: Any) -> bool:
    """Whether it maps names to tensors and to nothing else."""
    return isinstance(content, dict) and all(isinstance(v, Tensor) for v in content.values())


def _refusal(path: Path, error: Exception) -> UserError:
    refused = REFUSED.search(str(error))
    if refused is None:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return UserError(f"{path}: not a readable torch file ({reason})", "get it again")
    return UserError(
        f"{path}: it would call {refused[1]}, which a model has no need of; nothing was executed",
        "save the model's state dict instead, with the code that wrote the file",
    )


CLASS_OF = "txlbench.class_of"
"""The name under which an edited file calls `class_of`."""

CALL_CLASS_OF = b"ctxlbench\nclass_of\n"
APPLIED = b"\x85R"
"""Opcodes: make a tuple of the argument, call the function below it."""

PICKLES_BEFORE_MODEL = 3
"""Magic number, protocol version, facts of the system that wrote the file."""


def class_of(persistent_id: tuple[Any, ...]) -> Any:
    """The class in ("module", class, source file, source)."""
    return persistent_id[1]


def edited(path: Path) -> BinaryIO:
    """The content of `path` with ids of classes replaced by calls of `class_of`.

    Raises:
        UserError: if it is no row of pickles.
    """
    content = path.read_bytes()
    stream = BytesIO(content)
    try:
        for _ in range(PICKLES_BEFORE_MODEL):
            list(pickletools.genops(stream))
        opcodes = [op for op in pickletools.genops(stream) if op[2] is not None]
    except ValueError as error:
        raise UserError(f"{path}: not a torch file ({error})", "get it again") from error
    pieces, done = [], 0
    for start, end, piece in sorted(_edits(opcodes)):
        pieces += [content[done:start], piece]
        done = end
    return BytesIO(b"".join([*pieces, content[done:]]))


def _edits(opcodes: Iterable[Any]) -> Iterator[tuple[int, int, bytes]]:
    """Yields edits (start, end, replacement) of bytes: before each id's tuple and at its end."""
    marks: list[list[Any]] = []
    closed: list[Any] = []
    memo: dict[int, Any] = {}
    text: Any = None
    for opcode, argument, position in opcodes:
        if opcode.name == "BINPERSID" and closed[1:] == ["module"]:
            yield closed[0], closed[0], CALL_CLASS_OF
            yield position, position + 1, APPLIED
        if opcode.name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = text
            continue
        text = memo.get(argument) if "GET" in opcode.name else argument
        if marks and len(marks[-1]) == 1:
            marks[-1].append(text)
        if opcode.name == "MARK":
            marks.append([position])
        elif pickletools.markobject in opcode.stack_before and marks:
            closed = marks.pop()

"""Arrays of an .npz file, read without pickle and only after their sizes were checked."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, MemoryError),
    *(RuntimeError, NotImplementedError, SyntaxError, TokenError, OverflowError, TypeError),
)
"""What Python and numpy raise on files that are cut, damaged, encrypted or something else."""
LARGEST_RATIO = 1100
"""Deflate makes nothing smaller than this; a file that says so lies about its size."""
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Header:
    """What an array says of itself before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class NpzMembers:
    """The arrays of an open .npz file by name."""

    path: Path
    archive: zipfile.ZipFile

    @property
    def names(self) -> list[str]:
        return [name.removesuffix(".npy") for name in self.archive.namelist()]

    def header(self, name: str) -> Header:
        """Shape and type of `name`; ValueError if the file cannot hold that much."""
        info = self.archive.getinfo(f"{name}.npy")
        with self.archive.open(info) as file:
            header = _read_header(file)
            size = file.tell() + math.prod(header.shape) * header.dtype.itemsize
        if header.dtype.hasobject:
            raise UserError(
                f"{self.path}: '{name}' holds Python objects, which are never loaded",
                "save plain numbers and strings with numpy.savez",
            )
        if size != info.file_size or size > LARGEST_RATIO * (info.compress_size + 1):
            raise ValueError(f"'{name}' says shape {header.shape}, which is not what it holds")
        return header

    def read(self, name: str) -> NDArray[Any]:
        """The array itself."""
        with self.archive.open(f"{name}.npy") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def open_npz(path: Path) -> Iterator[NpzMembers]:
    """The arrays of the file at `path`.

    Raises:
        UserError: if it is not there or, while it is open, turns out not to be a whole .npz file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield NpzMembers(path, archive)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "give an .npz file") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "give an .npz file") from error
    except UNREADABLE as error:
        why = str(error) or type(error).__name__
        raise UserError(
            f"{path}: not a whole .npz file ({why})", "write it with numpy.savez"
        ) from error


def _read_header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"array format {version[0]}.{version[1]} is not read here")
    shape, _, dtype = HEADERS[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"shape {shape}")
    return Header(shape, dtype)

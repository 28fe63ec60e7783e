"""TensorFlow checkpoints (version 2: PREFIX.index and PREFIX.data-*), read without TensorFlow.

The index is a sorted table of names, each with dtype, shape and place of a tensor; the data files
hold the tensors' bytes one after the other. Formats: TensorFlow's `tensor_bundle.proto` and
LevelDB's table format; tables are written uncompressed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER, TRAILER = 48, 5
"""Bytes at the end of the table, and after each block: its compression and checksum."""

DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""TensorFlow's numbers for the types that are read."""


class Entry(NamedTuple):
    """Where a tensor lies, and what it is."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    sliced: bool


class TensorBundle:
    """The tensors of a checkpoint by name.

    Attributes:
        entries: what the index says, by name.
    """

    def __init__(self, prefix: Path) -> None:
        self.index = prefix.with_name(prefix.name + ".index")
        self.prefix = prefix
        if not self.index.is_file():
            raise UserError(f"{self.index}: no such file", "give the checkpoint without suffix")
        try:
            records = dict(_records(self.index.read_bytes()))
            self.shards = int(_fields(records.pop(b"")).get(1, [1])[0])
            self.entries = {name.decode(): _entry(value) for name, value in records.items()}
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise UserError(f"{self.index}: not a checkpoint's index", "get it again") from error

    def read(self, name: str) -> NDArray[np.generic]:
        """The tensor `name`; UserError naming the file if it is torn or of an unknown type."""
        entry = self.entries[name]
        data = f"{self.prefix.name}.data-{entry.shard:05}-of-{self.shards:05}"
        path = self.prefix.with_name(data)
        if entry.dtype not in DTYPES or entry.sliced:
            raise UserError(f"{self.index}: {name}: not a whole tensor of numbers", "leave it out")
        if not path.is_file() or path.stat().st_size < entry.offset + entry.size:
            raise UserError(f"{path}: {name}: missing or cut off", "get the file again")
        dtype = np.dtype(DTYPES[entry.dtype])
        values = np.fromfile(path, dtype, entry.size // dtype.itemsize, offset=entry.offset)
        if values.size != np.prod(entry.shape, dtype=np.int64):
            raise UserError(f"{self.index}: {name}: size and shape disagree", "get it again")
        return values.reshape(entry.shape)


def _records(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table, through its index block."""
    if table[-len(MAGIC) :] != MAGIC:
        raise ValueError("no table")
    footer = table[-FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    for _, value in _block(table, index):
        yield from _block(table, _handle(value, 0)[0])


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """(offset, size) of a block, and the position after it."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(table: bytes, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block; a key repeats the beginning of the one before it."""
    offset, size = handle
    block = table[offset : offset + size]
    if table[offset + size] != 0:
        raise ValueError("compressed")
    restarts = int.from_bytes(block[-4:], "little")
    key, at, end = b"", 0, len(block) - 4 * (restarts + 1)
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _entry(message: bytes) -> Entry:
    """A `BundleEntryProto`: dtype 1, shape 2, shard 3, offset 4, size 5, slices 7."""
    fields = _fields(message)
    shape = _fields(fields.get(2, [b""])[0])
    sizes = tuple(_number(_fields(size), 1) for size in shape.get(2, []))
    dtype, shard, offset, size = (_number(fields, number) for number in (1, 3, 4, 5))
    return Entry(dtype, sizes, shard, offset, size, 7 in fields)


def _number(fields: dict[int, list[int | bytes]], number: int) -> int:
    """A field that is a number, which is left out where it is 0."""
    return int(fields.get(number, [0])[0])


def _fields(message: int | bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol buffer by number: integers and bytes, as often as they come."""
    assert isinstance(message, bytes)
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            value, at = message[at : at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and the position after it."""
    value = shift = 0
    while data[at] & 128:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1

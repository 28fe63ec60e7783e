"""The released TensorFlow code's checkpoints, by the names of their variables, without TensorFlow.

Kernels and projections stand there as [in, out], so they are transposed. Layer norms have an
epsilon of 1e-12 there and 1e-5 here, as in the released PyTorch code. `same_length` sees one key
more there: evaluate with mem_len + 1 to see the same keys (erratum E17).

Checkpoints are of version 2, PREFIX.index and PREFIX.data-*. The index is a sorted table of names,
each with dtype, shape and place of a tensor; the data files hold the tensors' bytes one after the
other. Formats: TensorFlow's `tensor_bundle.proto` and LevelDB's table format; tables are written
uncompressed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.errors import UserError
from txlbench.models.convert.official import Converted, from_official, inferred, model_config
from txlbench.records.loss_file import read_npz

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER, TRAILER = 48, 5
"""Bytes at the end of the table, and after each block: its compression and checksum."""

DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""TensorFlow's numbers for the types that are read."""


class Entry(NamedTuple):
    """An index entry: dtype and shape of a tensor, and its place in the data files."""

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
    """A numeric field; protocol buffers leave out zeros."""
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


SCOPE = "transformer"
LAYER_NAMES = {
    "rel_attn/qkv/kernel": "dec_attn.qkv_net.weight",
    "rel_attn/r/kernel": "dec_attn.r_net.weight",
    "rel_attn/o/kernel": "dec_attn.o_net.weight",
    "rel_attn/LayerNorm/gamma": "dec_attn.layer_norm.weight",
    "rel_attn/LayerNorm/beta": "dec_attn.layer_norm.bias",
    "ff/layer_1/kernel": "pos_ff.CoreNet.0.weight",
    "ff/layer_1/bias": "pos_ff.CoreNet.0.bias",
    "ff/layer_2/kernel": "pos_ff.CoreNet.3.weight",
    "ff/layer_2/bias": "pos_ff.CoreNet.3.bias",
    "ff/LayerNorm/gamma": "pos_ff.layer_norm.weight",
    "ff/LayerNorm/beta": "pos_ff.layer_norm.bias",
}
OF_TRAINING = frozenset({"global_step", "beta1_power", "beta2_power"})
OF_OPTIMISERS = frozenset({"Adam", "Adam_1", "Momentum"})
"""What checkpoints hold of their training, and the last part of the names of such variables."""
NOTES = (
    "dropout and dropatt (taken as 0)",
    "mem_len, tgt_len, clamp_len and same_length",
)


class Variables:
    """The variables of a checkpoint, read when asked for."""

    def __init__(self, path: Path, read: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self.path, self._read = path, read
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """The variables that were not asked for, without those of the optimiser."""
        others = (set(self._read) - self._used) - OF_TRAINING
        return sorted(name for name in others if name.rpartition("/")[2] not in OF_OPTIMISERS)

    def __contains__(self, name: str) -> bool:
        return f"{SCOPE}/{name}" in self._read

    def __getitem__(self, name: str) -> Tensor:
        """The variable, matrices of layers and projections as [out, in]; UserError if missing."""
        if name not in self:
            raise UserError(f"{self.path}: {SCOPE}/{name}: missing", "is it a Transformer-XL?")
        self._used.add(f"{SCOPE}/{name}")
        try:
            tensor = torch.from_numpy(self._read[f"{SCOPE}/{name}"]())
        except (ValueError, TypeError, OSError) as error:
            raise UserError(
                f"{self.path}: {SCOPE}/{name}: not an array of numbers ({error})", "write it again"
            ) from error
        transposed = name.rsplit("/", 1)[-1] in ("kernel", "proj", "proj_W")
        return tensor.T.contiguous() if transposed else tensor

    def numbered(self, pattern: str) -> list[str]:
        """The names by the pattern with 0, 1, ..., up to the first that is missing."""
        return list(takewhile(self.__contains__, map(pattern.format, count())))


def read_tf(prefix: Path) -> Converted:
    """Reads a checkpoint, or an `.npz` of its variables by their names.

    Args:
        prefix: the checkpoint's path without `.index`, or the path of the `.npz`.

    Raises:
        UserError: naming file and variable, for what is missing or damaged.
    """
    if not prefix.name:
        raise UserError(f"tf:{prefix}: names no checkpoint", "give its path without .index")
    variables = _npz(prefix) if prefix.suffix == ".npz" else _bundle(prefix)
    tensors = dict(_layers(variables))
    cutoffs = _clusters(variables, tensors)
    untied = variables["r_w_bias"].dim() == 3
    for bias in ("r_w_bias", "r_r_bias"):
        tensors[bias] = variables[bias] if untied else variables[bias][None]
    settings, vocabulary_size = inferred(variables.path, tensors, untied, cutoffs)
    config = model_config(variables.path, {**settings, "dropout": 0.0, "dropatt": 0.0})
    weights = from_official(variables.path, config, vocabulary_size, tensors)
    notes: tuple[str, ...] = NOTES
    if unused := variables.unused:
        notes += (f"not used: {len(unused)} variables of the checkpoint, such as {unused[0]}",)
    return Converted(config, vocabulary_size, weights, notes=notes)


def _bundle(prefix: Path) -> Variables:
    bundle = TensorBundle(prefix)
    return Variables(bundle.index, {name: partial(bundle.read, name) for name in bundle.entries})


def _npz(path: Path) -> Variables:
    arrays = read_npz(path)
    return Variables(path, {name: partial(arrays.__getitem__, name) for name in arrays})


def _layers(variables: Variables) -> Iterator[tuple[str, Tensor]]:
    for layer in range(len(variables.numbered("layer_{}/rel_attn/qkv/kernel"))):
        for theirs, official in LAYER_NAMES.items():
            yield f"layers.{layer}.{official}", variables[f"layer_{layer}/{theirs}"]


def _clusters(variables: Variables, tensors: dict[str, Tensor]) -> list[int]:
    """Adds embedding and softmax to `tensors`; returns the cutoffs."""
    names = variables.numbered("adaptive_softmax/cutoff_{}/b")
    biases = [variables[name] for name in names or ["adaptive_softmax/bias"]]
    single = "adaptive_embed/lookup_table" in variables
    for table, bias in enumerate([torch.cat(biases)] if single else biases):
        place = "adaptive_embed" if single else f"adaptive_embed/cutoff_{table}"
        tensors[f"crit.out_layers.{table}.bias"] = bias
        tensors[f"word_emb.emb_layers.{table}.weight"] = variables[f"{place}/lookup_table"]
        if f"{place}/proj_W" in variables:
            tensors[f"word_emb.emb_projs.{table}"] = variables[f"{place}/proj_W"]
    for cluster in range(len(biases)):
        own = f"adaptive_softmax/cutoff_{cluster}/proj"
        if own in variables:
            tensors[f"crit.out_projs.{cluster}"] = variables[own]
    if names[1:]:
        tensors["crit.cluster_weight"] = variables["adaptive_softmax/cutoff_0/cluster_W"]
        tensors["crit.cluster_bias"] = variables["adaptive_softmax/cutoff_0/cluster_b"]
    if not single:
        _add_identity(tensors)
    return list(accumulate(map(len, biases)))[:-1]


def _add_identity(tensors: dict[str, Tensor]) -> None:
    """Gives the head cluster the projection that the code leaves out where it needs none.

    With `proj_same_dim` off, as in the published lm1b model, a cluster as wide as the model is
    not projected. The identity, shared by embedding and softmax, changes no number.
    """
    if "word_emb.emb_projs.0" not in tensors:
        width = tensors["word_emb.emb_layers.0.weight"].shape[1]
        tensors["word_emb.emb_projs.0"] = torch.eye(width)

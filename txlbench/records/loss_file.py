"""A loss file: the loss on each of T tokens given exactly c predecessors, for C values of c.

An .npz file that any program can write: `losses` [C, T] in nats, `contexts` [C] ascending and
`positions` [T], the index of each predicted token in its split. Strings and numbers beside them
say whose losses they are. Losses of several models may be compared where tokens, contexts and
vocabulary are the same. `ids` [N], `pieces` [V] and `counts` [V] may say what the tokens of the
split are, what each id reads as, and how often training met it.

Where models with several tokenizers were scored on the same bytes, a target is a unit of text of
one or more tokens: `bytes` [T] are their lengths, and contexts and positions are in bytes too.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from txlbench.errors import UserError
from txlbench.files import write_atomically

UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, MemoryError),
    *(RuntimeError, NotImplementedError, SyntaxError, TokenError, OverflowError, TypeError),
)
"""Exceptions of Python and numpy on files that are cut, damaged, encrypted or something else."""
LARGEST_RATIO = 1100
"""Deflate makes nothing smaller than this; a file that says so lies about its size."""


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an .npz file by name, read without pickle.

    What a file says of its size is held against its own size before anything is unpacked.

    Raises:
        UserError: if it is not there, or is not a whole .npz file of plain arrays.
    """
    arrays: dict[str, NDArray[Any]] = {}
    name = ""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.file_size > LARGEST_RATIO * (member.compress_size + 1):
                    raise ValueError(f"{member.filename} says {member.file_size:,} bytes")
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                arrays[name] = file[name]
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "give an .npz file") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "give an .npz file") from error
    except UNREADABLE as error:
        why = f"{name}: " * bool(name) + (" ".join(str(error).split()) or type(error).__name__)
        raise UserError(
            f"{path}: not a whole .npz file of plain arrays ({why})", "write it with numpy.savez"
        ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy gives what is no array as bytes
            raise UserError(f"{path}: '{name}' is no array", "write it with numpy.savez")
    return arrays


ARRAYS = {"losses": (2, "f"), "contexts": (1, "iu"), "positions": (1, "iu")}
"""Name -> (dimensions, kinds of numbers)."""
TEXT = {"ids": "iu", "pieces": "U", "counts": "iu"}
"""Arrays of one dimension that need not be there, and their kinds."""
STRINGS = ("name", "corpus", "split", "vocabulary", "model", "settings")
LONGEST_STRING = 1 << 20
"""Bytes."""
STRETCHES = 20
TEXT_LAYOUT = (
    "ids [N] are the tokens of the split, from 0; pieces [V] and counts [V] have one for each id"
)
LAYOUT = "a loss file holds losses [C, T] in nats, contexts [C] and positions [T]"
MOST_NATS = 1e6
"""No model comes near; a larger loss is damage, and sums of such squares overflow."""
LONGEST_NAME = 200
"""Characters of a name that are shown."""
CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}.union(
        range(0xD800, 0xE000), {0xFFFE, 0xFFFF}
    ).difference(map(ord, "\t\n\r")),
    "\N{REPLACEMENT CHARACTER}",
)
"""For `str.translate`: what steers a terminal, turns text around or is no character of XML."""


@dataclass(frozen=True, eq=False)
class LossFile:
    """Losses of one model, and what is known of them.

    Attributes:
        losses: [C, T], nats; float32 in the file.
        contexts: [C], ascending numbers of predecessors.
        positions: [T], ascending; index of each predicted token in the split.
        name: what the model is called.
        corpus: checksum of the text.
        vocabulary: checksum of what the ids mean.
        model: fingerprint of the weights.
        settings: how the losses were obtained, as plain data.
        longest: the most predecessors the model can use; None without limit.
        path: where it was read from.
        bytes: [T], bytes of each target, if contexts and positions are in bytes; None in tokens.
        text: `ids`, `pieces` and `counts`, those that the file has.
    """

    losses: NDArray[Any]
    contexts: NDArray[Any]
    positions: NDArray[Any]
    name: str | None = None
    corpus: str | None = None
    split: str | None = None
    vocabulary: str | None = None
    model: str | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    longest: int | None = None
    path: Path | None = None
    bytes: NDArray[Any] | None = None
    text: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def nats(self) -> NDArray[np.float64]:
        """[C, T]: losses whose mean is nats a token, or nats a byte where `bytes` are known."""
        exact = self.losses.astype(np.float64)
        return exact if self.bytes is None else exact / self.bytes.mean()

    @property
    def title(self) -> str:
        """Its path and its name in messages, as far as it has them."""
        if self.path is None:
            return self.name or "losses"
        return f"{self.path} ('{self.name}')" if self.name else str(self.path)

    def at(self, contexts: Sequence[int]) -> "LossFile":
        """Returns the losses at some of its contexts; UserError naming those it lacks."""
        lacking = sorted(set(contexts) - set(self.contexts.tolist()))
        if lacking:
            raise UserError(
                f"{self.title}: has no losses at contexts {', '.join(map(str, lacking))}",
                f"choose among {', '.join(map(str, self.contexts))}",
            )
        rows = np.searchsorted(self.contexts, contexts)
        return replace(self, losses=self.losses[rows], contexts=self.contexts[rows])

    def spread(self, tokens: int) -> "LossFile":
        """Returns a part of its positions, in 20 stretches over all; UserError if it has fewer."""
        if tokens > len(self.positions):
            raise UserError(
                f"{self.title}: {len(self.positions):,} tokens, but {tokens:,} were asked for",
                "lower --tokens",
            )
        number, stretches = np.arange(tokens), min(STRETCHES, tokens)
        left_out = len(self.positions) - tokens
        chosen = number + left_out * (number * stretches // tokens) // max(1, stretches - 1)
        return replace(
            self,
            losses=self.losses[:, chosen],
            positions=self.positions[chosen],
            bytes=None if self.bytes is None else self.bytes[chosen],
        )


def read_loss_file(path: Path) -> LossFile:
    """Reads the loss file at `path` and puts its positions in ascending order.

    Raises:
        UserError: in one line, if it is not there, not an .npz file, not a loss file, or holds a
            loss that is not a number.

    Control characters of its strings and pieces are replaced, as they are shown to people.
    """
    arrays = read_npz(path)
    _check_layout(path, arrays)
    strings = {name: _string(path, name, arrays[name]) for name in STRINGS if name in arrays}
    longest = _whole_number(path, "longest", arrays["longest"]) if "longest" in arrays else None
    settings = _parse_settings(path, strings.pop("settings", ""))
    return checked(
        LossFile(
            arrays["losses"],
            arrays["contexts"],
            arrays["positions"],
            **strings,
            settings=settings,
            longest=longest,
            path=path,
            bytes=arrays.get("bytes"),
            text=_text(path, arrays),
        )
    )


def write_loss_file(path: Path, file: LossFile) -> None:
    """Writes `file` whole or not at all; UserError as in `read_loss_file`, before anything is."""
    file = checked(file)
    content: dict[str, Any] = {
        "losses": file.losses.astype(np.float32, copy=False),
        "contexts": file.contexts,
        "positions": file.positions,
        "settings": json.dumps(dict(file.settings), sort_keys=True),
    }
    texts = {name: getattr(file, name) for name in STRINGS if name != "settings"}
    content |= {name: text for name, text in texts.items() if text is not None} | dict(file.text)
    if file.longest is not None:
        content["longest"] = np.int64(file.longest)
    if file.bytes is not None:
        content["bytes"] = file.bytes
    write_atomically(path, lambda stream: np.savez(stream, allow_pickle=False, **content))


def checked(file: LossFile) -> LossFile:
    """Returns `file` with whole numbers as int64 and positions ascending.

    Raises:
        UserError: naming the file, if contexts do not ascend, a position comes twice, shapes do
            not fit, a target has no bytes or fewer predecessors than the longest context, or a
            loss is NaN, infinite or beyond all models.
    """
    if file.name is not None:
        file = replace(file, name=_shown_name(file.name))
    where = file.title
    contexts, positions = file.contexts.astype(np.int64), file.positions.astype(np.int64)
    if file.losses.shape != (len(contexts), len(positions)) or not file.losses.size:
        raise UserError(
            f"{where}: losses {list(file.losses.shape)} of {len(contexts)} contexts and "
            f"{len(positions)} positions",
            LAYOUT,
        )
    if contexts[0] < 0 or (np.diff(contexts) <= 0).any():
        raise UserError(f"{where}: contexts {contexts.tolist()} found", "sort them, each once")
    if (lengths := file.bytes) is not None:
        if lengths.shape != positions.shape or lengths.dtype.kind not in "iu" or lengths.min() < 1:
            raise UserError(f"{where}: bytes: {_found(lengths)}", "give the bytes of each target")
        lengths = lengths.astype(np.int64)
    order = np.argsort(positions, kind="stable")
    if (np.diff(order) == 1).all():
        losses = file.losses
    else:
        losses, positions = file.losses[:, order], positions[order]
        lengths = None if lengths is None else lengths[order]
    twice = np.flatnonzero(np.diff(positions) == 0)
    if twice.size or positions[0] < 0:
        bad = positions[twice[0]] if twice.size else positions[0]
        raise UserError(f"{where}: position {bad} found{' twice' * bool(twice.size)}", LAYOUT)
    if positions[0] < contexts[-1]:
        raise UserError(
            f"{where}: positions: {positions[0]} has no {contexts[-1]} predecessors",
            "give indices in the split, and contexts that all of them have",
        )
    if file.longest is not None and file.longest < 1:
        raise UserError(f"{where}: longest {file.longest} found", "give at least 1")
    _refuse_no_losses(where, losses, contexts, positions)
    return replace(file, losses=losses, contexts=contexts, positions=positions, bytes=lengths)


def _shown_name(name: str) -> str:
    """In one line, without what steers a terminal, and not longer than people read."""
    line = " ".join(name.split()).translate(CONTROLS)
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def _refuse_no_losses(
    where: str, losses: NDArray[Any], contexts: NDArray[Any], positions: NDArray[Any]
) -> None:
    """Refuses (UserError) what no model can have lost, naming the first such value."""
    bad, what = np.argwhere(~np.isfinite(losses)), "not numbers"
    if not len(bad) and max(float(losses.max()), -float(losses.min())) > MOST_NATS:
        beyond = np.abs(losses) > np.float64(MOST_NATS)
        bad, what = np.argwhere(beyond), f"beyond {MOST_NATS:,.0f} nats"
    if not len(bad):
        return
    row, column = bad[0]
    loss = float(losses[row, column])
    value = f"losses: {loss:.3g} nats"
    if not np.isfinite(loss):
        value = "NaN loss" if np.isnan(loss) else "infinite loss"
    raise UserError(
        f"{where}: {value} at context {contexts[row]}, position {positions[column]} "
        f"({len(bad):,} of {losses.size:,} losses are {what})",
        "leave the model out, or mend what made it",
    )


def _check_layout(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuses what is not a loss file."""
    for name, (dimensions, kinds) in ARRAYS.items():
        if name not in arrays:
            found = ", ".join(sorted(arrays)[:8]) or "nothing"
            raise UserError(f"{path}: no '{name}' in it ({found} found)", LAYOUT)
        array = arrays[name]
        if name == "losses" and array.ndim == 1:
            raise UserError(
                f"{path}: losses of one dimension: this is an `eval` file",
                "give a model, or a file of losses [C, T] at several contexts",
            )
        if array.ndim != dimensions or array.dtype.kind not in kinds:
            raise UserError(f"{path}: {name}: {_found(array)}", LAYOUT)


def _found(array: NDArray[Any]) -> str:
    return f"shape {list(array.shape)} of {array.dtype} found"


def _string(path: Path, name: str, array: NDArray[Any]) -> str:
    if array.dtype.kind != "U" or array.shape or array.dtype.itemsize > LONGEST_STRING:
        raise UserError(f"{path}: {name}: {_found(array)}", "give one short string")
    return str(array).translate(CONTROLS)


def _text(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What the file says of its text; UserError where ids and positions do not fit."""
    found = {name: arrays[name] for name in TEXT if name in arrays}
    for name, array in found.items():
        if array.ndim != 1 or array.dtype.kind not in TEXT[name] or not array.size:
            raise UserError(f"{path}: {name}: {_found(array)}", TEXT_LAYOUT)
    if "pieces" in found:
        found["pieces"] = np.array([each.translate(CONTROLS) for each in found["pieces"].tolist()])
    if "counts" in found and (found["counts"].min() < 0 or not found["counts"].any()):
        least, most = found["counts"].min(), found["counts"].max()
        raise UserError(
            f"{path}: counts: from {least} to {most}",
            "give how often training met each id, or leave them out",
        )
    if "ids" not in found:
        return {}
    ids = found["ids"]
    if ids.min() < 0 or int(arrays["positions"].max(initial=0)) >= len(ids):
        raise UserError(
            f"{path}: ids: {len(ids):,} of them from {ids.min()}, and positions to "
            f"{arrays['positions'].max():,}",
            TEXT_LAYOUT,
        )
    for name in ("pieces", "counts"):
        if name in found and len(found[name]) <= ids.max():
            raise UserError(f"{path}: {name}: {len(found[name]):,} of them", TEXT_LAYOUT)
    return found


def _whole_number(path: Path, name: str, array: NDArray[Any]) -> int:
    if array.dtype.kind not in "iu" or array.shape:
        raise UserError(f"{path}: {name}: {_found(array)}", "give one whole number")
    return int(array)


def _parse_settings(path: Path, text: str) -> dict[str, JsonValue]:
    try:
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise UserError(f"{path}: settings: {text[:60]!r} found", "give a JSON object")
    return {key.translate(CONTROLS): _clean(value) for key, value in settings.items()}


def _clean(value: JsonValue) -> JsonValue:
    """The value with every string as `CONTROLS` leaves it."""
    if isinstance(value, str):
        return value.translate(CONTROLS)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {key.translate(CONTROLS): _clean(each) for key, each in value.items()}
    return value


REMEDY = "models are compared on the same tokens at the same contexts only"
GIVEN = ("corpus", "split", "vocabulary")


def check_agreement(files: Sequence[LossFile]) -> None:
    """Refuses (UserError) files that differ in anything that is given, saying what differs."""
    for file in files[1:]:
        difference = _difference(files[0], file)
        if difference:
            raise UserError(f"{file.title}: {difference} in {files[0].title}", REMEDY)
    for name in GIVEN:
        said = [file for file in files if getattr(file, name) is not None]
        for file in said[1:]:
            ours, theirs = getattr(file, name), getattr(said[0], name)
            if ours != theirs:
                raise UserError(
                    f"{file.title}: {name} {ours!r}, but {theirs!r} in {said[0].title}", REMEDY
                )


def check_contexts(files: Sequence[LossFile]) -> None:
    """Refuses (UserError) files of several groups that differ in their contexts."""
    for file in files[1:]:
        difference = _other_contexts(files[0], file)
        if difference:
            raise UserError(
                f"{file.title}: {difference} in {files[0].title}, of another group",
                "give --contexts that all have, or measure the groups one by one",
            )


def _other_contexts(one: LossFile, other: LossFile) -> str | None:
    if np.array_equal(one.contexts, other.contexts):
        return None
    return f"contexts {brief(other.contexts)}, but {brief(one.contexts)}"


def _difference(one: LossFile, other: LossFile) -> str | None:
    """Says which arrays differ, as "<what `other` has>, but <what `one` has>"."""
    contexts = _other_contexts(one, other)
    if contexts:
        return contexts
    if (one.bytes is None) != (other.bytes is None):
        counted = [f"counted in {'tokens' if f.bytes is None else 'bytes'}" for f in (other, one)]
        return f"{counted[0]}, but {counted[1]}"
    ours, theirs = other.positions, one.positions
    if len(ours) != len(theirs):
        return f"{len(ours):,} positions, but {len(theirs):,}"
    differing = np.flatnonzero(ours != theirs)
    if differing.size:
        first = differing[0]
        return (
            f"{differing.size:,} of {len(ours):,} positions differ, the first is {ours[first]}, "
            f"but {theirs[first]}"
        )
    lengths, others = one.bytes, other.bytes
    if lengths is not None and others is not None and not np.array_equal(lengths, others):
        return "targets of other bytes, though at the same positions, than"
    return None


def brief(numbers: NDArray[Any]) -> str:
    """Shows numbers in a message: all of a few, else first and last."""
    if len(numbers) <= 12:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} to {numbers[-1]} ({len(numbers)} of them)"

"""The files of a Hugging Face folder: its vocabulary, unless it is a pickle, and its weights in
safetensors or torch files, whole or in shards."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from txlbench.errors import UserError
from txlbench.files import read_json, write_atomically, write_json, write_text
from txlbench.models.convert import torch_load

LINES, MAPPING, TORCH = "vocab.txt", "vocab.json", "vocab.bin"


def read_tokens(directory: Path, vocabulary_size: int) -> tuple[str, ...] | None:
    """The tokens in order of id, None if the folder has no such file.

    `vocab.txt` has a token a line, `vocab.json` maps tokens to ids or lists them, `vocab.bin` is
    the attributes of Hugging Face's tokenizer. Its usual `vocab.pkl` is a pickle and not read.

    Raises:
        UserError: naming the file, if its tokens are not as many as the model's or not unique.
    """
    for name, read in ((LINES, _lines), (MAPPING, _mapping), (TORCH, _torch)):
        path = directory / name
        if path.exists():
            return _checked(path, read(path), vocabulary_size)
    return None


def write_tokens(directory: Path, tokens: Sequence[str]) -> None:
    """Writes `vocab.txt`, which Hugging Face's tokenizer reads, if lines can hold the tokens."""
    if all(token.split() == [token] for token in tokens):
        write_text(directory / LINES, "".join(f"{token}\n" for token in tokens))
    else:
        write_json(directory / MAPPING, list(tokens))


def _checked(path: Path, tokens: Iterable[Any], size: int) -> tuple[str, ...]:
    found = tuple(tokens)
    if not all(isinstance(token, str) for token in found) or len(set(found)) != len(found):
        raise UserError(f"{path}: its tokens are not different strings", "mend or remove it")
    if len(found) != size:
        raise UserError(
            f"{path}: {len(found)} tokens found, but the model has {size}", "mend or remove it"
        )
    return found


def _lines(path: Path) -> list[str]:
    """The first word of each line, as the released code reads it; counts may follow."""
    try:
        return [line.split()[0] for line in path.read_text("utf-8").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text", "mend or remove it") from error


def _mapping(path: Path) -> list[Any]:
    content = read_json(path)
    if isinstance(content, dict):
        if sorted(map(str, content.values())) != sorted(map(str, range(len(content)))):
            raise UserError(f"{path}: ids are not 0 to {len(content) - 1}", "mend or remove it")
        return sorted(content, key=content.__getitem__)
    return content if isinstance(content, list) else [None]


def _torch(path: Path) -> list[Any]:
    content = torch_load.load(path)
    symbols = content.get("idx2sym") if isinstance(content, dict) else None
    if not isinstance(symbols, list):
        raise UserError(f"{path}: idx2sym: no list of tokens", "remove the file")
    return symbols


WHOLE = "model.safetensors"
NAMES = (
    WHOLE,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""In the order in which Hugging Face's loader looks for them."""


def read_weights(directory: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file that stands for the weights, and its tensors by name.

    Raises:
        UserError: naming the file that is missing, damaged, or would execute code.
    """
    found = next((directory / name for name in NAMES if (directory / name).exists()), None)
    if found is None:
        raise UserError(f"{directory}: no weights", f"it needs one of {', '.join(NAMES)}")
    return found, _shards(found) if found.suffix == ".json" else _read(found)


def write_weights(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes one safetensors file, atomically; no two tensors may share memory."""
    # The loader of transformers insists on knowing that they are PyTorch's.
    content = save(dict(tensors), metadata={"format": "pt"})
    write_atomically(directory / WHOLE, lambda file: file.write(content))


def _shards(index: Path) -> dict[str, Tensor]:
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{index}: weight_map: not a mapping to file names", "get the file again")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise UserError(f"{index}: weight_map: {name!r} leaves the folder", "mend the file")
        tensors |= _read(index.parent / name)
    for key, name in places.items():
        if key not in tensors:
            raise UserError(f"{index.parent / name}: {key}: missing", "get the file again")
    return tensors


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    content: dict[str, Tensor] = torch_load.weights_within(torch_load.load(path))
    if not torch_load.is_state_dict(content):
        raise UserError(f"{path}: not a state dict", "it must map names to tensors")
    return content


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file", "the index names it") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a safetensors file ({error})", "get it again") from error

"""The vocabulary of a Hugging Face folder, where it is no pickle that would have to be executed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.files import read_json, write_json, write_text
from txlbench.models.convert import weights_only

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
    content = weights_only.load(path)
    symbols = content.get("idx2sym") if isinstance(content, dict) else None
    if not isinstance(symbols, list):
        raise UserError(f"{path}: idx2sym: no list of tokens", "remove the file")
    return symbols

"""Tokenizers of pretrained models: text to ids and byte offsets, and back without loss."""

import hashlib
import json
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "vocab")
"""Files of which a folder with a tokenizer has one at least."""
SPACE = "\u2581"
"""Stands for a space in the tokens of SentencePiece."""
BYTE = re.compile("<0x([0-9A-F]{2})>")
UNKNOWN = "\ufffd".encode()
"""Stands for a token that has no text."""


class TextTokenizer:
    """A tokenizer whose tokens, one after another, are exactly the bytes of the text.

    Args:
        tokenizer: of transformers.
        place: what messages call it.

    Attributes:
        bos: the id that the tokenizer puts before a text; None if it adds none.
        unknown: the id of text that it has no token for; None if there is none.
    """

    def __init__(self, tokenizer: Any, place: str) -> None:
        self._tokenizer, self._place = tokenizer, place
        self.bos = _added_before(tokenizer)
        self.unknown: int | None = tokenizer.unk_token_id

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def prefix(self) -> int:
        """The id before a text's first token where a program wants one: BOS, or else EOS."""
        given = (self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        return next((number for number in given if number is not None), 0)

    def encode(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids [T] of `text`, without BOS, and the end [T] of each token.

        Ends are offsets in the UTF-8 bytes of the text; the last one is their number. A token may
        end within a character.

        Raises:
            UserError: if the tokens do not give the text back byte by byte.
        """
        given = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids = np.array(given, dtype=np.int64)
        pieces = [self.pieces[number] for number in given]
        found, wanted = b"".join(pieces), text.encode()
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        if found == b" " + wanted:  # SentencePiece begins every text with a space
            return ids, ends - 1
        if found != wanted:
            raise self._lossy(found, wanted, int(np.count_nonzero(ids == self.unknown)))
        return ids, ends

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; bytes that are not UTF-8 come out as U+FFFD.

        So does an id beyond the tokenizer's, as models predict whose matrix is padded.
        """
        pieces = self.pieces
        found = (pieces[int(each)] if each < len(pieces) else UNKNOWN for each in ids)
        return b"".join(found).decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files into `folder`."""
        self._tokenizer.save_pretrained(folder)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of each token, by id."""
        ids = range(len(self))
        special = {number: str(token) for number, token in self._added.items()}
        symbols = self._tokenizer.convert_ids_to_tokens(list(ids))
        to_bytes = _of_byte_alphabet if self._is_byte_level else _of_sentencepiece
        return [
            special[number].encode() if number in special else to_bytes(symbol or "")
            for number, symbol in zip(ids, symbols, strict=True)
        ]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what decides the ids of a text; the same for equal tokenizers."""
        backend = self._backend
        parts = {key: backend.get(key) for key in ("model", "normalizer", "pre_tokenizer")}
        content = json.dumps([parts, [piece.hex() for piece in self.pieces]], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def _added(self) -> dict[int, Any]:
        found: dict[int, Any] = self._tokenizer.added_tokens_decoder
        return found

    @cached_property
    def _backend(self) -> dict[str, Any]:
        """The tokenizer's own description; empty where it is not of the library tokenizers."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        described: dict[str, Any] = {} if backend is None else json.loads(backend.to_str())
        return described

    @property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(self._backend.get("decoder"))

    def _lossy(self, found: bytes, wanted: bytes, unknown: int) -> UserError:
        same = next(
            (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
            min(len(found), len(wanted)),
        )
        read, text = (part[same : same + 12].decode(errors="replace") for part in (found, wanted))
        lacks = f", {unknown:,} tokens are unknown to it" if unknown else ""
        return UserError(
            f"{self._place}: its tokenizer does not give the text back: {text!r} at byte "
            f"{same:,} became {read!r}{lacks}",
            "losses of a changed text compare with nothing; give a model whose tokenizer keeps it",
        )


def load_tokenizer(folder: Path, gguf: str | None = None) -> TextTokenizer:
    """The tokenizer of a folder in the form of Hugging Face, or within its file `gguf`.

    Raises:
        UserError: if there is none, or it needs code of its own.
    """
    from transformers import AutoTokenizer

    place = folder if gguf is None else folder / gguf
    if gguf is None and not any((folder / name).is_file() for name in FILES):
        raise UserError(
            f"{folder}: no tokenizer", "put the model's tokenizer.json (or tokenizer.model) there"
        )
    options = {} if gguf is None else {"gguf_file": gguf}
    try:
        loaded = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, **options
        )
    except Exception as error:  # transformers raises every kind
        first = str(error).strip().split("\n")[0][:200]
        raise UserError(
            f"{place}: its tokenizer cannot be read ({type(error).__name__}: {first})",
            "save it anew with transformers' save_pretrained",
        ) from error
    return TextTokenizer(loaded, str(place))


def _added_before(tokenizer: Any) -> int | None:
    """The id that the tokenizer begins texts with, whatever it calls it; None without one."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    first, *rest = tokenizer("a")["input_ids"]
    return int(first) if rest[: len(plain)] == plain else None


def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE (Radford et al. 2019): printable ones
    for themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + number): byte for number, byte in enumerate(others)
    }


ALPHABET = _byte_alphabet()


def _of_byte_alphabet(symbol: str) -> bytes:
    if all(character in ALPHABET for character in symbol):
        return bytes(ALPHABET[character] for character in symbol)
    return symbol.encode()


def _of_sentencepiece(symbol: str) -> bytes:
    if byte := BYTE.fullmatch(symbol):
        return bytes([int(byte[1], 16)])
    return symbol.replace(SPACE, " ").encode(errors="replace")

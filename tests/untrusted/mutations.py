"""Ways in which a file can be other than it should be: in its bytes, or in its structure."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import yaml
from hypothesis import strategies as st

PLACES = st.floats(0, 1, exclude_max=True)
"""A place in a file or a structure, as a share of its length."""
SIZES = [b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00" * 8, b"\x00\x00\x00\x00\x00\xa0\x72\x4e"]
"""Counts and sizes as headers hold them: -1, 2 GB, nothing, and terabytes, in either order."""
DEEP = 20_000


def _flip(content: bytes, at: int, extra: bytes) -> bytes:
    return content[:at] + bytes([content[at] ^ (extra[0] or 1)]) + content[at + 1 :]


def _cut(content: bytes, at: int, extra: bytes) -> bytes:
    return content[:at]


def _insert(content: bytes, at: int, extra: bytes) -> bytes:
    return content[:at] + extra + content[at:]


def _drop(content: bytes, at: int, extra: bytes) -> bytes:
    return content[:at] + content[at + len(extra) :]


def _double(content: bytes, at: int, extra: bytes) -> bytes:
    return content[:at] + content[at : at + 8 * len(extra)] * 2 + content[at + 8 * len(extra) :]


def _size(content: bytes, at: int, extra: bytes) -> bytes:
    size = SIZES[extra[0] % len(SIZES)]
    size = size[::-1] if extra[0] & 128 else size
    return content[:at] + size + content[at + len(size) :]


def _digits(content: bytes, at: int, extra: bytes) -> bytes:
    """The next digit becomes a large number, as headers of text hold sizes."""
    place = next((i for i in range(at, len(content)) if content[i : i + 1].isdigit()), at)
    return content[:place] + b"9" * (1 + extra[0] % 20) + content[place + 1 :]


EDITS: list[Callable[[bytes, int, bytes], bytes]] = [
    _flip, _cut, _insert, _drop, _double, _size, _digits,
]  # fmt: skip


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """`content` after one to three edits."""
    for _ in range(draw(st.integers(1, 3))):
        if content:
            edit, place = draw(st.sampled_from(EDITS)), draw(PLACES)
            content = edit(
                content, int(place * len(content)), draw(st.binary(min_size=1, max_size=9))
            )
    return content


VALUES: list[Any] = [
    *(None, True, [], {}, "", "x", "../../escape", "/etc/passwd", "\x00", "é\ud800"),
    *(0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e308, 1e999, float("nan")),
    *([[]], [None], ["x"], [1, 2], [-1], [10**400], {"x": 1}, {"": {}}),
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    for key, below in items:
        yield from _places(below, (*path, key))


@st.composite
def restructured(draw: Any, value: Any) -> Any:
    """A structure of plain data in which one to three values became others, or are gone."""
    value = deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        path = places[int(draw(PLACES) * len(places))]
        new = draw(st.sampled_from(VALUES))
        if not path:
            return new
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        if draw(st.booleans()):
            parent[path[-1]] = deepcopy(new)
        elif isinstance(parent, dict) and draw(st.booleans()):
            parent[f"{path[-1]}x"] = parent.pop(path[-1])
        else:
            del parent[path[-1]]
    return value


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_yaml(value: Any) -> bytes:
    return yaml.dump(value, sort_keys=False).encode("utf-8", "surrogatepass")


@st.composite
def mutated(draw: Any, content: bytes, kind: str = "bytes") -> bytes:
    """Another content for a file: `kind` is bytes, json, lines (of JSON) or yaml."""
    if kind == "bytes" or draw(st.integers(0, 3)) == 0:
        return draw(damaged(content))
    if kind == "lines":
        lines = content.splitlines(keepends=True)
        at = int(draw(PLACES) * len(lines))
        lines[at] = as_json(draw(restructured(json.loads(lines[at])))) + b"\n"
        return b"".join(lines)
    if kind == "json":
        if draw(st.integers(0, 20)) == 0:
            return b"[" * DEEP
        return as_json(draw(restructured(json.loads(content))))
    return as_yaml(draw(restructured(yaml.safe_load(content))))

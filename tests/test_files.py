"""Files are whole or absent, lines stay whole on a disk that refuses some, and retries end."""

import errno
import json
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.disk import files_end_at
from txlbench import files
from txlbench.errors import UserError
from txlbench.files import (
    LineLog,
    is_transient,
    json_line,
    last_json_line,
    read_json,
    read_json_lines,
    retry_io,
    write_atomically,
    write_json,
    write_text,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_failure_while_writing_leaves_the_old_content_and_no_rest(tmp_path: Path):
    path = tmp_path / "state"
    write_text(path, "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["state"]


def test_nobody_sees_a_part(tmp_path: Path):
    path = tmp_path / "state"
    write_text(path, "old")

    def look(file: BinaryIO) -> None:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"

    write_atomically(path, look)
    assert path.read_text() == "new"


def test_text_is_utf8_with_the_line_ends_given_and_folders_are_made(tmp_path: Path):
    path = tmp_path / "a" / "b" / "text"
    write_text(path, "π\nx\r\n")
    assert path.read_bytes() == "π\nx\r\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_comes_back_and_has_stable_bytes(tmp_path: Path):
    value = {"b": [1, 2.5, None], "a": "π"}
    write_json(tmp_path / "one", value)
    write_json(tmp_path / "two", read_json(tmp_path / "one"))
    assert read_json(tmp_path / "two") == value
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "one", number)
    assert read_json(tmp_path / "one") == value


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000], ids=lambda c: repr(c[:3]))
def test_what_is_not_json_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a JSON file") as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_lines_are_read_from_where_the_last_reader_stopped(tmp_path: Path):
    path = tmp_path / "lines"
    assert list(read_json_lines(path)) == []
    path.write_bytes(json_line({"step": 1}) + json_line("π\n"))
    ((first, offset), (second, end)) = read_json_lines(path)
    assert (first, second, end) == ({"step": 1}, "π\n", path.stat().st_size)
    assert list(read_json_lines(path, offset)) == [("π\n", end)]
    with path.open("ab") as file:
        file.write(json_line(3))
    assert [value for value, _ in read_json_lines(path, end)] == [3]


def test_a_line_that_is_still_being_written_waits(tmp_path: Path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"step": 1}\n{"step"')
    assert list(read_json_lines(path)) == [({"step": 1}, 12)]
    assert last_json_line(path) == {"step": 1}
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert [value for value, _ in read_json_lines(path, 12)] == [{"step": 2}]
    assert last_json_line(path) == {"step": 2}


def test_a_damaged_line_is_named_with_its_place(tmp_path: Path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(UserError, match="lines: byte 12: not a line of JSON"):
        list(read_json_lines(path))


def test_the_last_line_of_a_long_file(tmp_path: Path):
    path = tmp_path / "lines"
    assert last_json_line(path) is None
    path.write_bytes(b"")
    assert last_json_line(path) is None
    path.write_bytes(b'{"step": 123456}\n' * 10_000 + b"[7]\n")
    assert last_json_line(path) == [7]


def steps(path):
    return [value["step"] for value, _ in read_json_lines(path)]


@pytest.fixture
def log(tmp_path):
    return LineLog(tmp_path / "metrics.jsonl")


def test_lines_are_there_at_once(log, tmp_path):
    for step in range(3):
        log.append({"step": step})
        assert steps(tmp_path / "metrics.jsonl") == list(range(step + 1))
    assert log.sync() == log.size == (tmp_path / "metrics.jsonl").stat().st_size


def test_refused_lines_wait_and_nothing_is_torn(log, tmp_path):
    path = tmp_path / "metrics.jsonl"
    log.append({"step": 0})
    whole = path.read_bytes()
    for room in range(12):  # bytes of the next line that still fit
        with files_end_at(len(whole) + room):
            log.append({"step": 1 + room})
            with pytest.raises(OSError, match="too large"):
                log.flush()
        assert path.read_bytes() == whole
    log.append({"step": 13})
    assert steps(path) == list(range(14))


def test_it_can_be_cut_and_never_grows_by_that(log, tmp_path):
    path = tmp_path / "metrics.jsonl"
    log.truncate(0)
    log.append({"step": 1})
    size = log.size
    log.append({"step": 2})
    log.truncate(1000)
    assert steps(path) == [1, 2]
    log.truncate(size)
    log.append({"step": 3})
    assert steps(path) == [1, 3]


def test_numbers_that_json_lacks_are_refused(log, tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        log.append({"loss": float("nan")})
    log.append({"step": 1})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1}


class Disk:
    """Refuses `times` times, then takes what it is given."""

    def __init__(self, times, number=errno.ENOSPC):
        self.left, self.number, self.calls = times, number, 0

    def write(self):
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError(self.number, "refused")
        return "written"


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(files, "RETRY_WAITS", (0.001, 0.002, 0.003))


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_transient_fault_is_retried(times, short_waits):
    disk = Disk(times)
    assert retry_io(disk.write) == "written"
    assert disk.calls == times + 1


def test_retries_end(short_waits):
    disk = Disk(10)
    with pytest.raises(OSError, match="refused"):
        retry_io(disk.write)
    assert disk.calls == 4


def test_another_fault_is_raised_at_once(short_waits):
    disk = Disk(1, errno.ENOTDIR)
    with pytest.raises(NotADirectoryError):
        retry_io(disk.write)
    assert disk.calls == 1


def test_waits_grow_and_are_seconds():
    waits = files.RETRY_WAITS
    assert sorted(waits) == list(waits)
    assert sum(waits) < 10


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EROFS, "read-only"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError("no number"), False),
        (ValueError(errno.ENOSPC), False),
    ],
)
def test_which_faults_is_transient(error, passes):
    assert is_transient(error) is passes


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """Renaming over it would take a device from the whole machine, as /dev/null from root."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_text(pipe, "text")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]

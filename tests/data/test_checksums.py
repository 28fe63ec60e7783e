"""A checksum is read again exactly when the file may have changed."""

import hashlib
import os
import time

import pytest

from txlbench.data import checksums
from txlbench.data.checksums import combined_checksum, file_checksum
from txlbench.errors import UserError

HOUR_AGO = time.time_ns() - 3_600_000_000_000


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"content")
    os.utime(path, ns=(HOUR_AGO, HOUR_AGO))
    return path


@pytest.fixture
def reads(monkeypatch):
    """The files that were read in full."""
    paths, read = [], checksums._read
    monkeypatch.setattr(checksums, "_read", lambda path: paths.append(path) or read(path))
    return paths


def test_an_untouched_file_is_read_once(text, reads):
    expected = hashlib.sha256(b"content").hexdigest()
    assert [file_checksum(text), file_checksum(text)] == [expected] * 2
    assert len(reads) == 1


def test_a_touched_file_is_read_again(text, reads):
    before = file_checksum(text)
    os.utime(text, ns=(HOUR_AGO + 1, HOUR_AGO + 1))
    assert file_checksum(text) == before
    assert len(reads) == 2


def test_an_edit_of_equal_size_right_after_reading_is_noticed(text):
    text.write_bytes(b"content")
    now = text.stat().st_mtime_ns
    before = file_checksum(text)
    text.write_bytes(b"CONTENT")
    os.utime(text, ns=(now, now))  # as if both fell into one tick of the file system's clock
    assert file_checksum(text) != before


def test_a_damaged_memory_is_ignored(text, data_directory):
    before = file_checksum(text)
    (memory,) = (data_directory / "checksums").iterdir()
    for content in ("{", "[]", "{}"):
        memory.write_text(content)
        assert file_checksum(text) == before


def test_no_memory_can_be_written_and_the_checksum_is_still_right(text, data_directory):
    data_directory.write_text("a file where the directory should be")
    assert file_checksum(text) == hashlib.sha256(b"content").hexdigest()


def test_several_files_change_their_checksum_together(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes(b"other")
    combined = combined_checksum([text, other])
    assert combined != combined_checksum([other, text])
    other.write_bytes(b"OTHER")
    assert combined_checksum([text, other]) != combined
    assert combined_checksum([text]) == file_checksum(text)


def test_what_is_not_a_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(UserError, match="no such file; give the path"):
            file_checksum(path)


def test_a_file_that_changes_while_it_is_read_is_refused(text, monkeypatch):
    def read_and_append(path):
        path.write_bytes(b"content and more")
        return "0" * 64

    monkeypatch.setattr(checksums, "_read", read_and_append)
    with pytest.raises(UserError, match="changed while it was read"):
        file_checksum(text)

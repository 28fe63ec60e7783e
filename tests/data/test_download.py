"""Directories of prepared corpora are whole or absent, whoever makes them at once.

Only the members that are asked for leave an archive, whole, and to where they were sent.

A checksum is read again exactly when the file may have changed.

A download is whole and right or absent, and a refusal says what to do (real local server).

Progress is drawn over on a terminal and said once elsewhere.
"""

import hashlib
import io
import os
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from txlbench.config.run_config import CorpusConfig
from txlbench.data import download
from txlbench.data.download import (
    DownloadBar,
    PublishedFile,
    create_directory,
    data_root,
    downloaded,
    extract,
    fetch,
    file_checksum,
    own_checksum,
)
from txlbench.errors import UserError


def test_the_data_root_is_the_users_cache_unless_chosen(monkeypatch, data_directory):
    assert data_root() == data_directory
    monkeypatch.delenv("TXLBENCH_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert data_root() == Path("/somewhere/txlbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "txlbench"


def test_a_directory_keeps_what_is_new_and_loses_what_is_scratch(tmp_path):
    def fill(new, scratch):
        (scratch / "fetched").write_text("x")
        (new / "kept").write_text("y")

    create_directory(tmp_path / "made", fill)
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "kept"]


def test_a_failure_leaves_nothing(tmp_path):
    def fill(new, scratch):
        (new / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_directory(tmp_path / "made", fill)
    assert list(tmp_path.iterdir()) == []


def test_whoever_finishes_first_wins(tmp_path):
    def fill_late(new, scratch):
        create_directory(tmp_path / "made", lambda new, scratch: (new / "by").write_text("first"))
        (new / "by").write_text("second")

    create_directory(tmp_path / "made", fill_late)
    assert (tmp_path / "made" / "by").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


CONTENT = b"a few words\n" * 50_000
NAMES = ["some.zip", "some.tar.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_the_members_asked_for_are_written_and_no_others(archive, tmp_path, name):
    path = archive(name, {"d/a": CONTENT, "d/b": b"other", "c": b"third"})
    out = tmp_path / "out"
    out.mkdir()
    extract(path, {"d/a": out / "first", "c": out / "second"})
    assert {file.name: file.read_bytes() for file in out.iterdir()} == {
        "first": CONTENT,
        "second": b"third",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_leading_dot_in_the_archive_does_not_matter(archive, tmp_path, name):
    extract(archive(name, {"./d/a": b"abc"}), {"d/a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == b"abc"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("member", ["../a", "/tmp/a", "e/a", "A"])
def test_a_member_of_another_name_is_not_taken_and_nothing_is_written(
    archive, tmp_path, name, member
):
    path = archive(name, {member: b"evil"})
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UserError, match=f"{name}: lacks a; give the published archive"):
        extract(path, {"a": out / "a"})
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_links_and_folders_are_no_members(tmp_path, kind):
    secret, path = tmp_path / "secret", tmp_path / "some.tar.gz"
    secret.write_text("secret")
    with tarfile.open(path, "w:gz") as file:
        info = tarfile.TarInfo("a")
        info.type, info.linkname = kind, str(secret)
        file.addfile(info)
    with pytest.raises(UserError, match="lacks a"):
        extract(path, {"a": tmp_path / "out"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.9])
def test_an_archive_that_ends_early_is_refused(archive, tmp_path, name, kept):
    path = archive(name, {"a": CONTENT, "b": bytes(range(256)) * 400})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(
        UserError, match=rf"{name}: (no archive, or a damaged one; get it again|la)"
    ):
        extract(path, {"a": tmp_path / "x", "b": tmp_path / "y"})


def test_a_zip_whose_content_was_damaged_is_refused(archive, tmp_path):
    path = archive("some.zip", {"a": CONTENT})
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="damaged"):
        extract(path, {"a": tmp_path / "x"})


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "some.zip"
    path.write_text("<html>moved</html>")
    with pytest.raises(UserError, match=r"some\.zip: no archive, or a damaged one"):
        extract(path, {"a": tmp_path / "x"})


@pytest.mark.parametrize("header", [b"\x1f\x8b\x08", b"\x1f\x8b\x08\x0c\x88\x8c\rk"])
def test_a_gzip_header_that_is_cut_off_is_refused(tmp_path, header):
    path = tmp_path / "some.tar.gz"
    path.write_bytes(header)
    with pytest.raises(UserError, match=r"some\.tar\.gz: no archive, or a damaged one"):
        extract(path, {"a": tmp_path / "x"})


def test_a_member_that_claims_another_size_than_it_has_is_refused(tmp_path):
    path = tmp_path / "some.zip"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", CONTENT)
        file.infolist()[0].file_size += 1
    path.write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match=r"some\.zip: x has 600000 bytes, not 600001; get it again"):
        extract(path, {"a": tmp_path / "x"})
    assert len(CONTENT) == 600_000


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
    monkeypatch.setattr(download, "SETTLED_NS", -1)  # as if the files had lain there for long
    paths, read = [], download._read
    monkeypatch.setattr(download, "_read", lambda path: paths.append(path) or read(path))
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


def test_a_damaged_memory_is_ignored(text, data_directory, reads):
    before = file_checksum(text)
    (memory,) = (data_directory / "checksums").iterdir()
    for content in ("{", "[]", "{}"):
        memory.write_text(content)
        assert file_checksum(text) == before


def test_no_memory_can_be_written_and_the_checksum_is_still_right(text, data_directory):
    data_directory.write_text("a file where the directory should be")
    assert file_checksum(text) == hashlib.sha256(b"content").hexdigest()


def test_an_edit_that_keeps_size_and_time_is_noticed(text, monkeypatch):
    """ctime and inode belong to the stamp: `os.utime` cannot set the one, a copy has another."""
    monkeypatch.setattr(download, "SETTLED_NS", -1)
    before = file_checksum(text)
    text.write_bytes(b"CONTENT")
    os.utime(text, ns=(HOUR_AGO, HOUR_AGO))
    assert file_checksum(text) == hashlib.sha256(b"CONTENT").hexdigest() != before


def own(*paths, **more):
    keys = ("path", "valid", "test")
    return CorpusConfig(name="mine", **dict(zip(keys, map(str, paths), strict=False)), **more)


def test_several_files_change_their_checksum_together(text, tmp_path):
    valid, test = tmp_path / "valid.txt", tmp_path / "test.txt"
    valid.write_bytes(b"valid")
    test.write_bytes(b"test")
    before = own_checksum(own(text, valid, test))
    assert before != own_checksum(own(text, test, valid))
    valid.write_bytes(b"VALID")
    assert own_checksum(own(text, valid, test)) != before
    assert own_checksum(own(text)) == file_checksum(text)


def test_each_column_of_a_file_has_a_checksum_of_its_own(text):
    found = {own_checksum(own(text)), *(own_checksum(own(text, column=c)) for c in "ab")}
    assert len(found) == 3


def test_a_checksum_that_is_not_remembered_leaves_no_file(text, data_directory):
    expected = hashlib.sha256(b"content").hexdigest()
    assert own_checksum(own(text), remember=False) == expected
    assert not data_directory.exists()


def test_what_is_not_a_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(UserError, match="no such file; give the path"):
            file_checksum(path)


def test_a_file_that_changes_while_it_is_read_is_refused(text, monkeypatch):
    def read_and_append(path):
        path.write_bytes(b"content and more")
        return "0" * 64

    monkeypatch.setattr(download, "_read", read_and_append)
    with pytest.raises(UserError, match="changed while it was read"):
        file_checksum(text)


FETCHING_CONTENT = b"the published text\n" * 10_000
SHA256 = hashlib.sha256(FETCHING_CONTENT).hexdigest()
INSTEAD = "get it another way: --from-file PATH"


class Handler(BaseHTTPRequestHandler):
    """Answers as the path says, and keeps the paths that were asked for."""

    asked: list[str] = []

    def do_GET(self):
        self.asked.append(self.path)
        name = self.path.strip("/")
        if name.startswith("right"):
            self.answer(200, FETCHING_CONTENT)
        elif name == "truncated":
            self.answer(200, FETCHING_CONTENT[:5000], length=len(FETCHING_CONTENT))
        elif name == "unannounced":
            self.answer(200, FETCHING_CONTENT[:5000], length=None)
        elif name == "moved":
            self.answer(301, location="http://127.0.0.1:9/nowhere")
        elif name == "moved-right":
            self.answer(301, location="/right")
        elif name == "endless":
            self.answer(301, location="/endless")
        elif name == "page":
            self.answer(200, b"<html>sign in</html>")
        else:
            self.answer(int(name))

    def answer(self, status, body=b"", length=0, location=None):
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length or len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Nothing on the error stream, which tests look at."""


@pytest.fixture
def server():
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def published(server):
    """A file that lies at the given paths of the server."""

    def published(*paths, sha256=SHA256):
        return PublishedFile("text.zip", tuple(f"{server}/{path}" for path in paths), sha256)

    return published


def test_addresses_are_tried_in_turn_until_one_has_the_right_file(published):
    file = published("403", "404", "moved", "truncated", "page", "right", "right-too")
    path = fetch(file, INSTEAD)
    assert path == downloaded(file)
    assert path.read_bytes() == FETCHING_CONTENT
    assert Handler.asked[-1] == "/right"
    assert [p.name for p in path.parent.iterdir()] == ["text.zip"]


def test_what_is_there_is_not_fetched_again(published):
    fetch(published("right"), INSTEAD)
    assert fetch(published("403"), INSTEAD).read_bytes() == FETCHING_CONTENT
    assert Handler.asked == ["/right"]


def test_a_half_file_in_its_place_is_fetched_again(published):
    file = published("right")
    downloaded(file).parent.mkdir(parents=True)
    downloaded(file).write_bytes(FETCHING_CONTENT[:100])
    assert fetch(file, INSTEAD).read_bytes() == FETCHING_CONTENT


def test_a_redirection_that_leads_somewhere_is_followed(published):
    assert fetch(published("moved-right"), INSTEAD).read_bytes() == FETCHING_CONTENT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("403", "403 Forbidden"),
        ("404", "404 Not Found"),
        ("503", "503 Service Unavailable"),
        ("moved", "no connection"),
        ("endless", "redirected without end"),
        ("truncated", "cut off"),
        ("unannounced", r"another file \(wrong checksum\)"),
        ("page", r"another file \(wrong checksum\)"),
    ],
)
def test_a_refusal_names_address_reason_checksum_and_the_way_out(published, path, reason):
    file = published(path)
    message = (
        rf"cannot fetch text\.zip \(SHA-256 {SHA256}\): {file.addresses[0]}: {reason}; {INSTEAD}"
    )
    with pytest.raises(UserError, match=message) as refusal:
        fetch(file, INSTEAD)
    assert "\n" not in str(refusal.value)
    assert not downloaded(file).exists()
    assert list(downloaded(file).parent.iterdir()) == []


def test_every_address_is_named_with_its_own_reason(published):
    file = published("403", "moved")
    with pytest.raises(UserError) as refusal:
        fetch(file, INSTEAD)
    assert f"{file.addresses[0]}: 403 Forbidden, {file.addresses[1]}: no connection" in str(
        refusal.value
    )


def test_a_file_without_a_known_checksum_is_still_never_cut_off(published):
    file = published("truncated", sha256=None)
    with pytest.raises(UserError, match=r"\(no SHA-256 known\).*cut off"):
        fetch(file, INSTEAD)
    assert (
        fetch(published("truncated", "right", sha256=None), INSTEAD).read_bytes()
        == FETCHING_CONTENT
    )


def test_a_fault_of_our_own_disk_is_no_fault_of_an_address(published, data_directory):
    data_directory.write_text("a file where the directory should be")
    with pytest.raises(OSError, match=str(data_directory)):
        fetch(published("right"), INSTEAD)


def test_a_download_shows_one_line_and_a_refusal_none(published, capsys):
    with pytest.raises(UserError):
        fetch(published("403", "404"), INSTEAD)
    assert capsys.readouterr().err == ""
    file = published("403", "right")
    fetch(file, INSTEAD)
    assert capsys.readouterr().err == f"fetching {file.addresses[1]}\n"


def as_terminal(monkeypatch):
    """Makes standard error a terminal; a fixture would come before pytest sets it for the test."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def filled(sizes, total):
    bar = DownloadBar("fetching x")
    bar.total = total
    for size in sizes:
        bar.update(size)
    bar.reset()
    bar.update(total)
    bar.close()


def test_a_terminal_shows_how_much_of_how_much(monkeypatch):
    terminal = as_terminal(monkeypatch)
    filled([1_000_000] * 3, 3_000_000)
    assert "fetching x" in terminal.getvalue()
    assert "3.0/3.0 MB" in terminal.getvalue()


def test_an_unknown_total_is_left_out(monkeypatch):
    terminal = as_terminal(monkeypatch)
    bar = DownloadBar("fetching x")
    bar.update(2_500_000)
    bar.close()
    assert "2.5/? MB" in terminal.getvalue()


def test_an_interrupted_bar_gives_the_cursor_back_once(monkeypatch):
    terminal = as_terminal(monkeypatch)
    bar = DownloadBar("fetching x")
    bar.update(1)
    bar.close()
    bar.close()
    assert terminal.getvalue().count("\x1b[?25h") == 1


def test_elsewhere_one_line_says_what_goes_on(capsys):
    filled([1_000_000] * 3, 3_000_000)
    assert capsys.readouterr().err == "fetching x\n"


def test_nothing_is_shown_before_the_first_bytes(monkeypatch):
    terminal = as_terminal(monkeypatch)
    DownloadBar("fetching x").close()
    assert terminal.getvalue() == ""

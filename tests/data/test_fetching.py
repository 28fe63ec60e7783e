"""A download is whole and right or absent, and a refusal says what to do (real local server)."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from txlbench.data.fetching import PublishedFile, downloaded, fetch
from txlbench.errors import UserError

CONTENT = b"the published text\n" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
INSTEAD = "get it another way: --from-file PATH"


class Handler(BaseHTTPRequestHandler):
    """Answers as the path says, and keeps the paths that were asked for."""

    asked: list[str] = []

    def do_GET(self):
        self.asked.append(self.path)
        name = self.path.strip("/")
        if name.startswith("right"):
            self.answer(200, CONTENT)
        elif name == "truncated":
            self.answer(200, CONTENT[:5000], length=len(CONTENT))
        elif name == "unannounced":
            self.answer(200, CONTENT[:5000], length=None)
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
    assert path.read_bytes() == CONTENT
    assert Handler.asked[-1] == "/right"
    assert [p.name for p in path.parent.iterdir()] == ["text.zip"]


def test_what_is_there_is_not_fetched_again(published):
    fetch(published("right"), INSTEAD)
    assert fetch(published("403"), INSTEAD).read_bytes() == CONTENT
    assert Handler.asked == ["/right"]


def test_a_half_file_in_its_place_is_fetched_again(published):
    file = published("right")
    downloaded(file).parent.mkdir(parents=True)
    downloaded(file).write_bytes(CONTENT[:100])
    assert fetch(file, INSTEAD).read_bytes() == CONTENT


def test_a_redirection_that_leads_somewhere_is_followed(published):
    assert fetch(published("moved-right"), INSTEAD).read_bytes() == CONTENT


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
    assert fetch(published("truncated", "right", sha256=None), INSTEAD).read_bytes() == CONTENT


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

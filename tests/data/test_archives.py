"""Only the members that are asked for leave an archive, whole, and to where they were sent."""

import io
import tarfile
import zipfile

import pytest

from txlbench.data.archives import extract
from txlbench.errors import UserError

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

"""Texts come in pieces, with the same content wherever the chunks end."""

import pytest

from txlbench.data import text as text_module
from txlbench.data.text import TextPart
from txlbench.errors import UserError


@pytest.fixture(params=[1, 2, 3, 5, 1 << 18])
def chunk(request, monkeypatch):
    monkeypatch.setattr(text_module, "CHUNK", request.param)
    return request.param


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "text.txt"
        path.write_bytes(content)
        return path

    return write


def read(path, level, start=0, stop=None):
    return "".join(TextPart(path, start, stop).pieces(level))


def words(path):
    from txlbench.data.vocabulary import WordVocabulary

    return [word for piece in TextPart(path).pieces("word") for word in WordVocabulary.split(piece)]


def test_bytes_stay_as_they_are(chunk, write):
    content = bytes(range(256)) + b"\r\n\xff\xfe\r"
    assert read(write(content), "byte").encode("latin-1") == content


def test_crlf_counts_as_lf_and_a_lone_cr_stays(chunk, write):
    path = write(b"a\r\n\r\nb\rc\r\r\nd\r")
    assert read(path, "char") == "a\n\nb\rc\r\nd\r"


def test_characters_of_several_bytes_are_not_torn(chunk, write):
    text = "zażółć 語 😀\n" * 3
    assert read(write(text.encode()), "char") == text


def test_a_byte_order_mark_is_dropped_at_the_start_only(chunk, write):
    assert read(write("\ufeffa\ufeffb".encode()), "char") == "a\ufeffb"


def test_characters_get_no_final_newline(chunk, write):
    assert read(write(b"ab"), "char") == "ab"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a b\nc\n", "a b <eos> c <eos>"),
        (b"a b\nc", "a b <eos> c <eos>"),
        (b"\n\na\n\n", "<eos> <eos> a <eos> <eos>"),
        (b"a\r\n\r\nb\r\n", "a <eos> <eos> b <eos>"),
        (b"a \t b  \n   ", "a b <eos> <eos>"),
        (b" ", "<eos>"),
        (b"", ""),
    ],
)
def test_every_line_ends_in_eos(chunk, write, content, expected):
    assert words(write(content)) == expected.split()


def test_words_are_not_torn(chunk, write):
    text = "several words of\tsome length, zażółć\n"
    assert words(write(text.encode() * 2)) == [*text.split(), "<eos>"] * 2


def test_only_lf_ends_a_line(chunk, write):
    assert words(write("a\u2028b\x0bc\x85d\n".encode())) == ["a", "b", "c", "d", "<eos>"]


@pytest.mark.parametrize(
    ("content", "offset", "byte"),
    [(b"abc\xff", 3, "ff"), (b"\xef\xbb\xbfab\x80c", 5, "80"), ("é".encode() + b"a\xc3", 3, "c3")],
)
@pytest.mark.parametrize("level", ["char", "word"])
def test_what_is_not_utf8_is_named_with_its_offset(chunk, write, content, offset, byte, level):
    path = write(content)
    with pytest.raises(UserError, match=rf"text\.txt: byte {offset}: 0x{byte} .*level byte"):
        read(path, level)


@pytest.mark.parametrize("level", ["byte", "char"])
def test_a_part_is_cut_from_the_whole(chunk, write, level):
    path = write("aé\r\nbcd".encode())
    whole = read(path, level)
    for start in range(len(whole) + 1):
        for stop in (*range(start, len(whole) + 1), None):
            assert read(path, level, start, stop) == whole[start:stop]

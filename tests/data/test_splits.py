"""The three parts of a text are the whole text, cut at 90 and 95 percent of its units."""

import pytest

from txlbench.data import text as text_module
from txlbench.data.text import SPLITS, cut

TEXT = "".join(f"line {n} with żółć 😀\r\n" for n in range(40)) + "last line"


@pytest.fixture(params=[1, 7, 1 << 18], autouse=True)
def chunk(request, monkeypatch):
    monkeypatch.setattr(text_module, "CHUNK", request.param)


def parts(tmp_path, level, text=TEXT):
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    # Characters, also at word level, so that what is between words is compared too.
    reading = "char" if level == "word" else level
    return ["".join(cut(path, level)[split].pieces(reading)) for split in SPLITS]


@pytest.mark.parametrize("level", ["byte", "char", "word"])
def test_parts_follow_one_another_and_lose_nothing(tmp_path, level):
    whole = TEXT.encode().decode("latin-1") if level == "byte" else TEXT.replace("\r\n", "\n")
    assert "".join(parts(tmp_path, level)) == whole


def test_bytes_and_characters_are_cut_at_90_and_95_percent(tmp_path):
    n = len(TEXT.encode())
    assert [len(part) for part in parts(tmp_path, "byte")] == [
        n * 90 // 100,
        n * 95 // 100 - n * 90 // 100,
        n - n * 95 // 100,
    ]
    n = len(TEXT.replace("\r\n", "\n"))
    assert len(parts(tmp_path, "char")[0]) == n * 90 // 100


def test_lines_are_not_torn(tmp_path):
    train, valid, test = parts(tmp_path, "word")
    assert [part.count("\n") for part in (train, valid, test)] == [36, 2, 2]
    assert valid.startswith("line 36 ")
    assert test.endswith("last line")


def test_a_last_line_without_its_newline_counts(tmp_path):
    train, valid, test = parts(tmp_path, "word", "line\n" * 19 + "last")
    assert (train, valid, test) == ("line\n" * 18, "line\n", "last")


def test_a_text_of_few_lines_is_cut_between_words(tmp_path):
    text = " ".join(f"w{n}" for n in range(100)) + "\n"
    train, valid, test = parts(tmp_path, "word", text)
    assert train + valid + test == text
    assert (train[-4:], valid[:4], test[:4]) == ("w89 ", "w90 ", "w95 ")


def test_a_text_of_few_words_has_empty_parts(tmp_path):
    assert parts(tmp_path, "word", "a b c\n") == ["a b ", "", "c\n"]
    assert parts(tmp_path, "word", "") == ["", "", ""]

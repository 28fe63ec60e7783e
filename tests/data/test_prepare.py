"""A corpus is what its files say, is noticed when they change, and is never half there.

Preparing a corpus needs memory for its vocabulary, not for its text.
"""

import errno
import itertools
import multiprocessing
import os
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.plugged import forgotten, written
from txlbench.config.plugins import load_files
from txlbench.config.run_config import CorpusConfig, corpus_named
from txlbench.data import download
from txlbench.data import prepare as prepare_module
from txlbench.data.prepare import find_prepared, prepare
from txlbench.errors import UserError

LINES = [f"line {n % 7} of the {n % 3} text\n" for n in range(100)]


@pytest.fixture
def config(tmp_path):
    """Writes texts and configures them: one to be split, or one for each split."""

    def config(*contents, level="byte", name="mine"):
        paths = []
        for key, content in zip(("path", "valid", "test"), contents, strict=False):
            path = tmp_path / f"{name}-{key}.txt"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            paths.append((key, str(path)))
        return CorpusConfig(name=name, level=level, **dict(paths))

    return config


def decoded(corpus):
    return [corpus.vocabulary.decode(corpus.ids(split)) for split in ("train", "valid", "test")]


@pytest.mark.parametrize("level", ["byte", "char", "word"])
def test_the_splits_hold_the_text(config, level):
    corpus = prepare(config("".join(LINES), level=level))
    assert "".join(decoded(corpus)) == "".join(LINES)
    assert corpus.level == level
    assert corpus.split_rule == "90/5/5"
    if level == "word":
        assert corpus.tokens == {"train": 90 * 7, "valid": 5 * 7, "test": 5 * 7}


@pytest.mark.parametrize("level", ["byte", "char", "word"])
def test_given_files_are_the_splits(config, level):
    corpus = prepare(config("a b\n", "b a\n", "b b a\n", level=level))
    assert decoded(corpus) == ["a b\n", "b a\n", "b b a\n"]
    assert corpus.split_rule == "files"


def test_ids_are_mapped_read_only_in_the_smallest_type(config):
    ids = prepare(config("".join(LINES), level="char")).ids("train")
    assert isinstance(ids, np.memmap)
    assert ids.dtype == np.uint8
    assert ids.ndim == 1
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_more_than_256_symbols_take_two_bytes(config):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    corpus = prepare(config(text, text[:10], text[:9], level="char"))
    assert corpus.ids("train").dtype == np.dtype("<u2")
    assert decoded(corpus)[0] == text


def test_the_byte_vocabulary_is_all_256_values_whatever_the_text_has(config):
    assert len(prepare(config("aaaa", "aa", "aaa")).vocabulary) == 256


def test_facts_count_and_identify_everything(config):
    corpus = prepare(config("a b b\n", "b c\n", "a\n", level="word"))
    facts = corpus.facts()
    assert facts.tokens == {"train": 4, "valid": 3, "test": 2}
    assert facts.vocabulary_size == 4  # <eos> b a <unk>
    assert facts.unknown == {"valid": 1, "test": 0}
    # train + 1: b 3, <eos> 2, a 2, <unk> 1 of 8
    assert facts.unk == {"train": 0, "valid": 1, "test": 0}
    assert facts.unigram_loss["test"] == pytest.approx(-np.log(2 / 8))
    assert facts.vocabulary == corpus.vocabulary.fingerprint
    assert len(facts.checksum) == 64


def test_symbols_that_train_lacks_become_unk_and_are_warned_about(config):
    corpus = prepare(config("abc", "abz", "yyz", level="char"))
    assert corpus.unknown == {"valid": 1, "test": 3}
    assert decoded(corpus)[1:] == ["ab<unk>", "<unk><unk><unk>"]
    assert any("valid has 1 tokens (33.3%, 1 distinct, such as 'z')" in w for w in corpus.warnings)
    assert any("test has 3 tokens (100.0%, 2 distinct" in w for w in corpus.warnings)


def test_no_unk_is_added_where_train_has_every_symbol(config):
    corpus = prepare(config("abc", "ab", "bc", level="char"))
    assert corpus.vocabulary.symbols == ("a", "b", "c")
    assert corpus.warnings == ()


def test_identical_splits_are_warned_about(config):
    corpus = prepare(config("a b c", "b c", "b c"))
    assert corpus.warnings == ("valid and test are identical; numbers on them are not independent",)


def test_texts_that_differ_in_unknown_symbols_only_are_not_identical(config):
    corpus = prepare(config("a b", "a y", "a z", level="word"))
    assert np.array_equal(corpus.ids("valid"), corpus.ids("test"))
    assert not any("identical" in warning for warning in corpus.warnings)


def test_crlf_is_normalised_for_characters_and_words_only(config):
    unix, dos = "a b\n\nb\n", "a b\r\n\r\nb\r\n"
    assert decoded(prepare(config(dos, dos, dos, level="char")))[0] == unix
    assert decoded(prepare(config(dos, dos, dos, level="word")))[0] == unix
    assert decoded(prepare(config(dos, dos, dos, level="byte")))[0] == dos


@pytest.mark.parametrize(
    ("contents", "split", "found"),
    [
        (("ab", "", "ab"), "valid", 0),
        (("ab", "ab", "a"), "test", 1),
        (("", "ab", "ab"), "train", 0),
        (("ten bytes.",), "valid", 0),
        (("",), "train", 0),
    ],
)
@pytest.mark.parametrize("level", ["byte", "char"])
def test_a_split_of_fewer_than_two_tokens_is_refused(config, contents, split, found, level):
    with pytest.raises(UserError, match=rf"\.txt: {found} tokens in the {split} split, 2 are"):
        prepare(config(*contents, level=level))


def test_a_text_of_few_lines_is_split_between_words(config):
    corpus = prepare(config("many words " * 100, level="word"))
    assert corpus.tokens == {"train": 181, "valid": 11, "test": 11}  # an <eos> ends each
    assert decoded(corpus)[1] == "many words " * 4 + "many words\n"


def test_a_text_too_short_for_three_splits_is_refused(config):
    with pytest.raises(UserError, match=r"0 tokens in the valid split.*valid and test files"):
        prepare(config("many words\n", level="word"))


def test_a_lopsided_split_is_warned_about(config):
    """Lines are not torn: the last of twenty may be most of the text."""
    corpus = prepare(config("a line\n" * 38 + "a line\n" + "long " * 5000, level="word"))
    (warning,) = (each for each in corpus.warnings if "90/5/5" in each)
    assert "108 / 6 / 5,004 tokens, since it falls between lines; give valid and test" in warning
    even = prepare(config("a line\n" * 40, level="word"))
    assert not any("90/5/5" in each for each in even.warnings)


def test_bytes_that_are_not_utf8_are_data_or_an_error(config, data_directory):
    content = b"abc\xff" * 100
    assert prepare(config(content)).tokens["train"] == 360
    for level in ("char", "word"):
        with pytest.raises(UserError, match=r"mine-path\.txt: byte 3: 0xff is not UTF-8"):
            prepare(config(content, level=level))


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    for path, message in ((tmp_path / "no.txt", "no such file"), (tmp_path, r"no \*\.txt in this")):
        with pytest.raises(UserError, match=f"{path}: {message}"):
            prepare(CorpusConfig(name="mine", path=str(path)))


@pytest.mark.parametrize("level", ["byte", "char", "word"])
def test_the_texts_of_a_directory_follow_one_another_in_sorted_order(tmp_path, level):
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = [f"text {n % 9} of it, café\n" for n in range(40)]
    for n in reversed(range(4)):  # the second ends without its newline, and none is hidden
        text = "".join(lines[10 * n : 10 * n + 10])
        (folder / f"{n}.txt").write_bytes(text.removesuffix("\n" * (n == 1)).encode())
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "other.md").write_text("other")
    corpus = prepare(CorpusConfig(path=str(folder), level=level))
    assert corpus.name == "texts"
    assert "".join(decoded(corpus)) == "".join(lines)
    (folder / "4.txt").write_text("one more\n")
    assert prepare(CorpusConfig(path=str(folder), level=level)).checksum != corpus.checksum


def test_what_is_not_utf8_in_a_directory_is_named_by_its_own_file(tmp_path):
    (tmp_path / "a.txt").write_text("fine\n" * 40)
    (tmp_path / "b.txt").write_bytes(b"ab\xff")
    with pytest.raises(UserError, match=r"b\.txt: byte 2: 0xff is not UTF-8"):
        prepare(CorpusConfig(name="mine", path=str(tmp_path), level="word"))


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_column_of_a_table_is_a_text(tmp_path, suffix):
    comma = "," if suffix == "csv" else "\t"
    path = tmp_path / f"table.{suffix}"
    rows = [f'{n}{comma}"row {n}, said ""he""\n"\r\n' for n in range(40)]
    path.write_bytes("".join([f"\ufeffid{comma}text\r\n", *rows]).encode())
    corpus = prepare(CorpusConfig(path=str(path), column="text", level="char"))
    assert corpus.name == "table"
    assert "".join(decoded(corpus)) == "".join(f'row {n}, said "he"\n' for n in range(40))
    with pytest.raises(UserError, match=rf"{path}: no column 'txt'; did you mean 'text'"):
        prepare(CorpusConfig(path=str(path), column="txt"))


def test_a_table_that_ends_in_a_quotation_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('text\n"open')
    with pytest.raises(UserError, match=r"table\.csv: line \d: .*give a CSV file"):
        prepare(CorpusConfig(path=str(path), column="text"))


def test_a_second_call_builds_nothing(config, monkeypatch):
    mine = config("".join(LINES))
    assert find_prepared(mine) is None
    first = prepare(mine)
    monkeypatch.setattr(prepare_module, "_encode", None)
    assert prepare(mine) == first
    assert find_prepared(mine) == first


def test_an_edited_text_is_rebuilt_and_the_old_corpus_stays_readable(config):
    old = prepare(config("".join(LINES)))
    new = prepare(config("".join(LINES).upper()))
    assert new.checksum != old.checksum
    assert "".join(decoded(new)) == "".join(LINES).upper()
    assert "".join(decoded(old)) == "".join(LINES)


def test_an_edited_valid_file_is_noticed(config):
    old = prepare(config("abc", "ab", "bc", level="char"))
    new = prepare(config("abc", "aaz", "bc", level="char"))
    assert new.checksum != old.checksum
    assert decoded(new)[1] == "aa<unk>"


def test_a_text_that_changes_while_it_is_read_is_refused(config, monkeypatch):
    mine = config("".join(LINES))
    encode = prepare_module._encode

    def encode_and_edit(*arguments):
        with Path(mine.path).open("a") as file:
            file.write("more")
        return encode(*arguments)

    monkeypatch.setattr(prepare_module, "_encode", encode_and_edit)
    with pytest.raises(UserError, match="changed while it was read"):
        prepare(mine)
    assert find_prepared(mine) is None


def test_processes_that_prepare_at_once_get_the_same_corpus(config, data_directory):
    mine = config("".join(LINES) * 200)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        corpora = list(pool.map(prepare, [mine] * 4))
    assert all(corpus == corpora[0] for corpus in corpora)
    assert "".join(decoded(corpora[0])) == "".join(LINES) * 200
    assert [p.name for p in data_directory.iterdir() if p.name != "checksums"] == [
        corpora[0].directory.name
    ]


@pytest.mark.parametrize("name", ["train.ids", "corpus.json"])
@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:-1]), os.unlink])
def test_a_damaged_corpus_is_refused_with_the_directory_to_delete(config, name, damage):
    mine = config("".join(LINES))
    directory = prepare(mine).directory
    damage(directory / name)
    if name == "corpus.json" and (directory / name).exists():
        (directory / name).write_text("{}")
    with pytest.raises(UserError, match=f"{name}: .*; delete {directory} and run again"):
        prepare(mine)


def test_a_place_that_cannot_be_written_is_named(config, data_directory):
    data_directory.write_text("a file where the directory should be")
    with pytest.raises(UserError, match=f"{data_directory}.*permissions"):
        prepare(config("".join(LINES)))


def test_a_full_disk_is_named_with_the_way_out(config, monkeypatch, data_directory):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prepare_module, "_encode", full)
    with pytest.raises(UserError, match=f"{data_directory}: No space left.*TXLBENCH_DATA"):
        prepare(config("".join(LINES)))
    assert [p for p in data_directory.iterdir() if p.name != "checksums"] == []


def test_unk_that_train_has_too_is_counted_and_warned_about(config):
    corpus = prepare(config("a <unk>", "a b", "<unk> a", level="word"))
    assert corpus.unknown == {"valid": 1, "test": 0}
    assert corpus.unk == {"train": 1, "valid": 1, "test": 1}
    assert corpus.unk_share == pytest.approx({"train": 1 / 3, "valid": 1 / 3, "test": 1 / 3})
    (warning,) = corpus.warnings
    assert warning.startswith("valid has 1 tokens (33.3%")
    assert warning.endswith("they became <unk>, which train has 1 times")


def test_ids_are_scanned_once_and_again_after_a_change(config, monkeypatch):
    monkeypatch.setattr(download, "SETTLED_NS", -1)
    corpus = prepare(config("abc " * 40, level="char"))
    scans = []
    largest = np.memmap.max
    monkeypatch.setattr(np.memmap, "max", lambda ids: scans.append(1) or largest(ids))
    for _ in range(3):
        corpus.ids("train")
    assert len(scans) == 1
    path = corpus.directory / "train.ids"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(UserError, match=r"train\.ids: id 255 of 4 symbols; delete"):
        corpus.ids("train")


def test_bytes_need_no_scan(config, monkeypatch):
    corpus = prepare(config("abc " * 40))
    monkeypatch.setattr(np.memmap, "max", None)
    assert len(corpus.ids("train")) == 144


def test_a_text_takes_no_file_instead(config, tmp_path):
    with pytest.raises(UserError, match="drop --from-file"):
        prepare(config("abc"), from_file=tmp_path / "other.txt")


SENTENCE = " ".join(f"word{n}" for n in range(40)) + "\n"


def peak(tmp_path, copies):
    """Bytes allocated at most while a text of so many sentences is prepared."""
    path, small = tmp_path / f"{copies}.txt", tmp_path / "small.txt"
    with path.open("w") as file:
        file.writelines(itertools.repeat(SENTENCE, copies))
    small.write_text(SENTENCE)
    config = CorpusConfig(
        name="mine", path=str(path), valid=str(small), test=str(small), level="word"
    )
    tracemalloc.start()
    try:
        assert prepare(config).tokens["train"] == copies * 41
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_five_times_the_text_needs_no_more_memory(tmp_path):
    peak(tmp_path, 2)  # What is imported late counts for no text.
    once = peak(tmp_path, 2_000)
    assert peak(tmp_path, 10_000) < 1.05 * once


PLUGGED = """
from txlbench.config.catalogue import CorpusEntry, register_corpus
from txlbench.data.source import CatalogueSource
from txlbench.data.text import TextPart

class Mine(CatalogueSource):
    name = "plugged"

    def checksum(self):
        return "a" * 64

    def texts(self, scratch):
        path = scratch / "text.txt"
        path.write_text("some text " * 9)
        return dict.fromkeys(("train", "valid", "test"), TextPart(path))

register_corpus("plugged", CorpusEntry(Mine, "char", "computed", vocabulary_size=None))
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("path = scratch", "raise RuntimeError('down')  #", r":\d+: Mine: RuntimeError: down"),
        ("path = scratch", "raise OSError('no answer')  #", r":\d+: Mine: OSError: no answer"),
        ("path = scratch", "raise SystemExit(3)  #", r":\d+: Mine: SystemExit: 3"),
        ('return "a" * 64', "return 1 / 0", r":\d+: Mine: ZeroDivisionError"),
        ('return "a" * 64', "return b'a'", r": Mine: TypeError: checksum\(\) gave b'a'"),
        ("return dict", "return None and dict", ": Mine: TypeError"),
        ('"valid", "test"', '"valid"', r": Mine: TypeError: texts\(\) gave no test"),
        ("TextPart(path))", "'text')", ": Mine: AttributeError"),
    ],
)
def test_a_plugged_corpus_that_fails_is_named_with_its_file(tmp_path, old, new, why):
    assert old in PLUGGED
    with forgotten():
        load_files([written(tmp_path, PLUGGED.replace(old, new))])
        with pytest.raises(UserError, match=rf"mine\.py{why}.*; mend the plug-in"):
            prepare(corpus_named("plugged"))
        if "checksum" in why or "Zero" in why:
            with pytest.raises(UserError, match=rf"mine\.py{why}"):
                find_prepared(corpus_named("plugged"))


def test_a_plugged_corpus_whose_file_is_missing_names_that(tmp_path):
    with forgotten():
        text = PLUGGED.replace("path.write_text(", "(scratch / 'gone').read_text(), (")
        load_files([written(tmp_path, text)])
        with pytest.raises(UserError, match="gone: No such file"):
            prepare(corpus_named("plugged"))

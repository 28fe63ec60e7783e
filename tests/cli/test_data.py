"""`txlbench data` says what it did and where, and refuses in one line with exit status 2."""

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from txlbench.cli.data import data
from txlbench.errors import UserError

TEXT = "".join(f"line {n} of it\n" for n in range(100))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text(TEXT)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(data, arguments, catch_exceptions=False)


@pytest.mark.parametrize(("level", "tokens"), [("byte", None), ("char", None), ("word", 25)])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_export_writes_the_ids_of_a_text(folder, level, tokens, split):
    from txlbench.config.run_config import CorpusConfig
    from txlbench.data.prepare import prepare

    result = call("export", "mine.txt", "--level", level, "--split", split, "--out", "ids.npy")
    ids = np.load("ids.npy", allow_pickle=False)
    corpus = prepare(CorpusConfig(name="mine", path="mine.txt", level=level))
    assert np.array_equal(ids, corpus.ids(split))
    assert ids.dtype == np.uint8
    assert result.stdout == f"ids.npy: {len(ids):,} token ids (uint8) of mine {split}\n"
    if tokens and split != "train":
        assert len(ids) == tokens


def test_export_overwrites_an_array_but_nothing_else(folder):
    call("export", "mine.txt", "--out", "ids.npy")
    call("export", "mine.txt", "--split", "valid", "--out", "ids.npy")
    with pytest.raises(UserError, match=r"mine\.txt: exists and is not an array"):
        call("export", "mine.txt", "--out", "mine.txt")
    assert (folder / "mine.txt").read_text() == TEXT
    with pytest.raises(UserError, match="a directory"):
        call("export", "mine.txt", "--out", "data")


def test_export_to_a_place_that_cannot_be_written_is_refused(folder):
    with pytest.raises(UserError, match=r"mine\.txt/ids\.npy: .*--out"):
        call("export", "mine.txt", "--out", "mine.txt/ids.npy")


def test_list_shows_names_levels_and_what_is_prepared(folder):
    before = call("list").output
    call("prepare", "enwiki-sample")
    after = call("list").output
    (line,) = [line for line in before.splitlines() if line.startswith("enwiki-sample")]
    assert " ".join(line.split()) == (
        "enwiki-sample byte 256 symbols 5,480,771 tokens in train not prepared yet"
    )
    assert after == before.replace("not prepared yet", "prepared", 1)
    assert "wt103            word    267,735 symbols  103,227,021 tokens in train  not" in after
    assert "text8            char         27 symbols            ? tokens in train  not" in after


def test_prepare_says_how_much_and_where(folder):
    output = call("prepare", "mine.txt", "--level", "word").stdout
    assert output.startswith(f"mine: 500 tokens at word level in {folder / 'data'}")


def test_show_gives_counts_checksum_and_losses_in_the_unit_of_the_level(folder):
    words = call("show", "mine.txt", "--level", "word").stdout
    lines = {line[:12].strip(): line[13:] for line in words.splitlines()}
    assert lines["tokens"] == "train 450  valid 25  test 25"
    assert lines["unknown"] == "valid 5  test 5"  # the numbers of the lines
    assert lines["<unk>"] == "train 0.00%  valid 20.00%  test 20.00%"
    assert lines["vocabulary"] == "95 symbols"  # <eos>, line, of, it, 90 numbers, <unk>
    assert len(lines["checksum"]) == 64
    assert "unigram ppl" in lines
    assert "unigram bpc" not in lines
    assert "unigram bpc" in call("show", "mine.txt").output
    assert "<unk>        none" in call("show", "mine.txt").output


def test_the_unigram_loss_of_uniform_bytes_is_shown_in_bits(folder):
    (folder / "uniform.bin").write_bytes(bytes(range(256)) * 20)
    output = call("show", "uniform.bin").output
    assert "unigram bpc  train 8.000  valid 8.000  test 8.000" in output


def test_the_unigram_loss_of_words_is_shown_as_perplexity(folder):
    (folder / "words.txt").write_text("word\n" * 1000)
    output = call("show", "words.txt", "--level", "word").stdout
    assert "unigram ppl  train 2.000  valid 2.000  test 2.000" in output


def test_show_says_what_sets_a_corpus_of_the_catalogue_apart(folder):
    output = call("show", "enwiki-sample").stdout
    assert output.splitlines()[-1] == "note         6 MB of Wikipedia XML, no download"


def test_warnings_go_to_the_error_stream(folder):
    result = call("prepare", "mine.txt", "--level", "word")
    assert "warning: mine: valid has 5 tokens" in result.stderr
    assert "warning:" not in result.stdout


@pytest.mark.parametrize(
    ("file", "name"), [("wt103.txt", "wt103-text"), ("my text!.txt", "my-text"), ("_.x", "text")]
)
def test_a_text_is_named_for_its_file(folder, file, name):
    (folder / file).write_text(TEXT)
    assert call("prepare", file).output.startswith(f"{name}: ")


def test_a_misspelt_name_gets_a_suggestion(folder):
    with pytest.raises(
        UserError, match="neither a corpus nor a file; did you mean 'enwiki-sample'"
    ):
        call("show", "enwiki-sampel")


def test_a_level_that_a_corpus_does_not_have_is_refused(folder):
    with pytest.raises(UserError, match="level of enwiki-sample is byte, not word"):
        call("show", "enwiki-sample", "--level", "word")


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_a_refusal_is_one_line_with_exit_status_2(folder):
    done = run("-m", "txlbench.cli.main", "data", "prepare", "mine.txt", "--from-file", "x")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--from-file x" in done.stderr


def test_no_verb_imports_torch_pandas_or_mlflow(folder):
    code = (
        "import sys; from txlbench.cli.data import data\n"
        "for verb in (['list'], ['show', 'mine.txt'], ['export', 'mine.txt', '--out', 'i.npy']):\n"
        "    data(verb, standalone_mode=False)\n"
        "print(sorted({'torch', 'pandas', 'mlflow'} & set(sys.modules)))"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", ["prepare", "show", "export"])
def test_a_text_is_read_as_bytes_where_no_model_says_otherwise(verb):
    assert "[default: byte]" in " ".join(call(verb, "--help").stdout.split())

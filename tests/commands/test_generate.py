"""`generate` on runs and imported weights: text in, text out, and clear refusals."""

from pathlib import Path

import pytest

from tests.models.convert.scored import GOLDEN
from tests.runs.trial import finished, write_spec
from txlbench.commands.generate import GenerateRequest, generate_text
from txlbench.commands.model_ref import Capabilities, ModelRef
from txlbench.data.vocabulary import ByteVocabulary, likely_level
from txlbench.errors import UserError


def wish(settings=None, **asked):
    write_spec(settings)
    return GenerateRequest(
        str(finished().path), **{"prompt": "the ", "tokens": 8, "device": "cpu", **asked}
    )


def test_the_text_goes_on_from_the_prompt_and_the_seed_decides_how():
    one = wish()
    made = generate_text(one)
    assert made.text.startswith("the ")
    assert len(made.ids) == 8
    assert generate_text(one).ids == made.ids
    assert generate_text(GenerateRequest(**{**vars(one), "seed": 2})).ids != made.ids


def test_a_prompt_can_lie_in_a_file(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("the ")
    one = wish(prompt=None, prompt_file=path)
    assert generate_text(one).ids == generate_text(wish()).ids


def test_memory_is_as_trained_unless_asked_for_and_a_segment_where_there_was_none():
    assert generate_text(wish(mem_len=3)).mem_len == 3
    assert generate_text(wish()).mem_len > 0
    assert generate_text(wish({"train.recurrence": False})).mem_len > 0


def test_positions_that_restart_have_no_memory():
    settings = {"model.encoding": "absolute", "train.recurrence": False}
    assert generate_text(wish(settings)).mem_len is None
    with pytest.raises(UserError, match="absolute starts anew at every segment"):
        generate_text(wish(settings, mem_len=3))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"prompt": None}, "one of them is needed"),
        ({"prompt_file": Path("text")}, "one of them is needed"),
        ({"prompt": ""}, "no symbol"),
        ({"prompt": None, "prompt_file": Path("nowhere")}, "nowhere: No such file"),
    ],
)
def test_a_prompt_is_needed(asked, problem):
    with pytest.raises(UserError, match=problem):
        generate_text(wish(**asked))


def test_weights_without_a_vocabulary_are_refused():
    with pytest.raises(UserError, match="no vocabulary"):
        generate_text(GenerateRequest(f"hf:{GOLDEN / 'shared'}", prompt="a", device="cpu"))


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (tuple(map(chr, range(256))), "byte"),
        (("a", "b", "<unk>"), "char"),
        (("<eos>", "the", "a"), "word"),
    ],
)
def test_what_a_token_is_shows_in_the_vocabulary(tokens, level):
    known = Capabilities(len(tokens), level=likely_level(tokens), tokens=tokens)
    ref = ModelRef("one", known, Path(), fingerprint=None, open=None)
    assert ref.vocabulary().level == level
    assert ref.vocabulary("word").level == "word"


def test_a_recurrent_state_takes_no_memory_length():
    settings = {"model.kind": "lstm"}
    assert len(generate_text(wish(settings)).ids) == 8
    with pytest.raises(UserError, match=r"--mem-len: the state of lstm reaches back"):
        generate_text(wish(settings, mem_len=3))


def test_a_temperature_that_is_no_number_is_refused():
    with pytest.raises(UserError, match=r"--temperature: not a number"):
        generate_text(wish(temperature=float("nan")))


def test_bytes_that_are_no_text_are_taken_as_they_are(tmp_path):
    path = tmp_path / "prompt"
    path.write_bytes(b"the \xff\x00\xe2 ")
    made = generate_text(wish(prompt=None, prompt_file=path))
    assert len(made.ids) == 8
    assert list(ByteVocabulary.full().encode("a\udcff")) == [97, 255]


def test_a_run_is_never_read_at_another_level():
    with pytest.raises(UserError, match=r"--level word: .* reads bytes; use byte"):
        generate_text(wish(level="word"))

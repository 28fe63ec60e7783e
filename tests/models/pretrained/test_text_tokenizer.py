"""Tokenizers of pretrained models: ids, byte offsets, and texts that do not come back."""

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from tests.models.pretrained.architectures import byte_tokenizer
from txlbench.errors import UserError
from txlbench.models.pretrained.text_tokenizer import load_tokenizer

TEXT = "Hello, world!\r\n  two  spaces\n\nemoji 😀👩‍👩‍👧 中文 naïve ਪੰਜਾਬੀ\t."


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"], show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(["Hello world, two spaces 中文 emoji " * 9], trainer)
    return made


def sentencepiece() -> Tokenizer:
    """As in Llama 2: a space before the text, and bytes for what has no token."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁Helowrdtpacs"]
    made = Tokenizer(
        models.BPE({t: i for i, t in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


def saved(made: Tokenizer, folder, **special):
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    return load_tokenizer(folder)


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_tokens_are_the_bytes_of_the_text(make, tmp_path):
    tokenizer = saved(make(), tmp_path)
    ids, ends = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids).removeprefix(" ") == TEXT
    assert len(ids) == len(ends)
    assert ends[-1] == len(TEXT.encode())
    assert (ends[1:] > ends[:-1]).all()
    pieces = [tokenizer.pieces[number] for number in ids]
    starts = [0, *ends[:-1]]
    for piece, start, end in list(zip(pieces, starts, ends, strict=True))[1:]:
        assert TEXT.encode()[start:end] == piece


def test_a_text_of_special_tokens_comes_back(tmp_path):
    tokenizer = saved(byte_level(), tmp_path, bos_token="<s>")
    ids, ends = tokenizer.encode("a<s>b")
    assert len(ids) == 3
    assert ends.tolist() == [1, 4, 5]


def test_bos_is_told_apart_where_the_tokenizer_adds_it(tmp_path):
    made = byte_level()
    assert saved(made, tmp_path / "without", bos_token="<s>").bos is None
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
    )
    tokenizer = saved(made, tmp_path / "with", bos_token="<s>")
    assert tokenizer.bos == made.token_to_id("<s>")
    assert tokenizer.bos not in tokenizer.encode(TEXT)[0]
    assert saved(made, tmp_path / "named", cls_token="<s>").bos == tokenizer.bos


def test_the_fingerprint_is_of_tokens_and_rules(tmp_path):
    same, again = saved(byte_level(), tmp_path / "a"), saved(byte_level(), tmp_path / "b")
    assert same.fingerprint == again.fingerprint
    other = byte_level()
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert saved(other, tmp_path / "c").fingerprint != same.fingerprint


def test_a_text_that_is_changed_is_refused(tmp_path):
    made = byte_level()
    made.normalizer = normalizers.Lowercase()
    tokenizer = saved(made, tmp_path)
    assert len(tokenizer.encode("hello")[0])
    with pytest.raises(UserError, match=r"does not give the text back: 'World' at byte 6.*'world'"):
        tokenizer.encode("hello World")


def test_unknown_text_is_counted_in_the_refusal(tmp_path):
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = saved(made, tmp_path, unk_token="[UNK]")
    with pytest.raises(UserError, match="2 tokens are unknown"):
        tokenizer.encode("a b c")


def test_a_missing_tokenizer_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match=r"no tokenizer.*tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_one_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path)


def test_an_id_beyond_the_tokenizer_is_shown(tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).decode([0, 9999]) == "!\ufffd"

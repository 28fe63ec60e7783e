"""Several tokenizers, one text: units are the same bytes, whole tokens, and lose no nat."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from txlbench.data.tokenized import TokenizedText
from txlbench.errors import UserError
from txlbench.evaluation.byte_units import (
    choose_units,
    common_boundaries,
    longest_usable,
    unit_windows,
)
from txlbench.evaluation.context_losses import PartialLosses, window_losses
from txlbench.evaluation.context_positions import USUAL_COUNT
from txlbench.models.pretrained.text_tokenizer import TextTokenizer

CPU = torch.device("cpu")
TEXT = "".join(
    f"Line {i}: naïve café 😀👩‍👩‍👧 {'x' * (i % 23)}\r\nпривет, мир {i}\n日本語のテキスト。\n\n"  # noqa: RUF001
    for i in range(60)
)
SIZES = {"bytes": 256, "byte-level BPE": 400, "byte fallback": 300}


def byte_level():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["Line naïve café xxxxxxxxxxxx привет 日本語\n\n" * 9], trainer)
    return made


def byte_fallback():
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁Linexacfprд日本語"]
    merges = [("▁", "L"), ("x", "x"), ("日", "本")]
    vocabulary = {t: i for i, t in enumerate([*tokens, *("".join(pair) for pair in merges)])}
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


def tokenizer(made):
    from transformers import PreTrainedTokenizerFast

    return TextTokenizer(PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>"), "x")


@pytest.fixture(scope="module")
def texts():
    """The text as each tokenizer cuts it."""
    raw = np.frombuffer(TEXT.encode(), np.uint8).astype(np.int64)
    pieces = (tokenizer(make()).encode(TEXT) for make in (byte_level, byte_fallback))
    found = [TokenizedText(raw, np.arange(1, len(raw) + 1))]
    found += [TokenizedText(*each) for each in pieces]
    return dict(zip(SIZES, found, strict=True))


class Bigrams:
    """A model whose loss on a token depends on the one before it only."""

    def __init__(self, size):
        logits = torch.randn(size, size, generator=torch.Generator().manual_seed(size))
        self.table_VV = -3 * logits.double().log_softmax(1)

    def token_losses(self, tokens_BT):
        return self.table_VV[tokens_BT[:, :-1], tokens_BT[:, 1:]]


def unit_losses(text, units, size, path, at_once=3):
    windows = unit_windows(text, units)
    with PartialLosses(path / f"{size}.part") as kept:
        found = window_losses(
            Bigrams(size), text.ids, windows, kept, at_once=at_once, device=CPU,
            progress=lambda done, total: None,
        )  # fmt: skip
    return found.reshape(units.context_starts.shape)


def own_losses(text, size):
    """The loss of every token of the text but the first."""
    return Bigrams(size).token_losses(torch.from_numpy(text.ids)[None])[0].numpy()


@pytest.fixture
def whole_text(texts):
    """Units one after another, from the second boundary to the end of the text."""
    boundaries = common_boundaries(list(texts.values()))
    return choose_units(boundaries, (1, 2), int(boundaries[-1]) - 2)


def test_the_tokenizers_are_of_several_kinds(texts):
    content = TEXT.encode()
    lengths = {name: np.diff(text.ends, prepend=0) for name, text in texts.items()}
    assert lengths["bytes"].max() == 1
    assert lengths["byte-level BPE"].max() > 8
    inside = [e for e in texts["byte-level BPE"].ends[:-1] if 0x80 <= content[e] < 0xC0]
    assert inside, "some token ends within a character"
    assert all(text.ends[-1] == len(content) for text in texts.values())


@pytest.mark.parametrize("name", SIZES)
def test_totals_over_the_whole_text_are_each_models_own(name, texts, whole_text, tmp_path):
    text, size = texts[name], SIZES[name]
    found = unit_losses(text, whole_text, size, tmp_path, at_once=500)
    first = int(whole_text.starts[0])
    assert first <= 16, "units begin after one context"
    assert (whole_text.stops[:-1] == whole_text.starts[1:]).all(), "and leave no byte out"
    assert whole_text.stops[-1] == len(TEXT.encode())
    before = int(text.index(np.array([first]))[0])
    own = own_losses(text, size)[before - 1 :].sum()
    for context in found:
        assert context.astype(np.float64).sum() == pytest.approx(own, rel=1e-6)


@pytest.mark.parametrize("name", SIZES)
def test_a_unit_is_whole_tokens_of_every_model(name, texts):
    units = choose_units(common_boundaries(list(texts.values())), (16, 32, 64), 80)
    ends = {0, *texts[name].ends.tolist()}
    for bytes_ in (units.starts, units.stops, units.context_starts.ravel()):
        assert set(bytes_.tolist()) <= ends
    assert (units.stops > units.starts).all()


def test_every_context_begins_at_its_own_grid_point(texts):
    boundaries = common_boundaries(list(texts.values()))
    units = choose_units(boundaries, (16, 32, 64), 60)
    grid = {int(boundaries[boundaries >= place][0]) for place in range(0, len(TEXT.encode()), 16)}
    assert set(units.starts.tolist()) | set(units.context_starts.ravel().tolist()) <= grid
    assert (np.diff(units.context_starts, axis=0) <= 0).all()
    assert (units.context_starts[0] < units.starts).all()
    largest_gap = int(np.diff(boundaries).max())
    assert np.abs(units.deviations).max() < largest_gap
    exact = choose_units(np.arange(len(TEXT.encode()) + 1), (16, 32, 64), 60)
    assert not exact.deviations.any()


@pytest.mark.parametrize("at_once", [1, 7])
def test_windows_are_shared_and_each_loss_is_that_of_its_text_alone(texts, at_once, tmp_path):
    units = choose_units(common_boundaries(list(texts.values())), (16, 32, 48, 64), 50)
    for name, size in SIZES.items():
        text = texts[name]
        found = unit_losses(text, units, size, tmp_path, at_once)
        assert len(unit_windows(text, units)) <= len(units.starts) + 3 * 20
        firsts, stops = text.index(units.starts), text.index(units.stops)
        begins = text.index(units.context_starts)
        for c, t in [(0, 0), (1, 7), (3, len(firsts) - 1)]:
            alone = own_losses(TokenizedText(text.ids[begins[c, t] : stops[t]], text.ends), size)[
                firsts[t] - begins[c, t] - 1 :
            ].sum()
            assert found[c, t] == pytest.approx(alone, rel=1e-6)


def test_a_long_stretch_without_a_common_boundary_is_one_unit(texts):
    """Such as a word that one tokenizer has as a token, and another as many that end elsewhere."""
    long = TokenizedText(np.arange(3), np.array([100, 900, 1000]))
    short = TokenizedText(np.arange(250), np.arange(4, 1001, 4))
    units = choose_units(common_boundaries([long, short]), (50, 100), 18)
    assert units.starts.tolist() == [900]
    assert units.stops.tolist() == [1000]
    assert units.left_out == 17
    none = TokenizedText(np.arange(1), np.array([1000]))
    with pytest.raises(UserError, match="no two boundaries between tokens that all share"):
        choose_units(common_boundaries([none, short]), (50, 100), 18)


def test_a_text_too_short_is_told_in_bytes():
    with pytest.raises(UserError, match="beyond the split, which has 30 bytes"):
        choose_units(np.arange(31), (16, 64), None)
    assert USUAL_COUNT > 30
    with pytest.raises(UserError, match="only 14 bytes of the split have 16 predecessors"):
        choose_units(np.arange(31), (8, 16), 100)


def test_a_context_beyond_a_models_positions_uses_what_it_has(texts):
    text = texts["byte-level BPE"]
    units = choose_units(common_boundaries(list(texts.values())), (16, 64, 256), 40)
    longest = int((text.index(units.stops) - text.index(units.context_starts[1])).max())
    assert longest_usable(text, units, longest) == 64
    assert longest_usable(text, units, None) is None
    assert longest_usable(text, units, 10**6) is None
    windows = unit_windows(text, units, longest)
    assert int((windows.contexts + windows.lengths).max()) == longest + 1
    with pytest.raises(UserError, match=r"16 bytes are up to .* tokens, but the model has 2"):
        longest_usable(text, units, 2)

"""A byte model of ours and pretrained models with tokenizers of their own, in one group."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.models.pretrained.architectures import SIZE, save_model
from tests.runs.trial import finished, write_spec
from txlbench.commands.model_ref import resolve
from txlbench.commands.recl import run_recl
from txlbench.commands.recl_request import ReclRequest
from txlbench.commands.stored_losses import losses_of_all
from txlbench.config.base import AttentionSpan
from txlbench.config.run_config import CorpusConfig
from txlbench.data.prepare import prepare
from txlbench.data.tokenized import shared_text
from txlbench.errors import UserError
from txlbench.evaluation.context_losses import PartialLosses

CPU = torch.device("cpu")
TEXT = "".join(f"Zeile {i}: naïve 😀 {'ab' * (i % 7)} привет\r\n日本 the end\n" for i in range(480))
LLAMA = "hf:llama"


def bpe(folder, bos=True):
    """A byte-level BPE of 264 tokens, with a BOS that stands before every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"], show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(["the end naïve ababab " * 9], trainer)
    if bos:
        made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>").save_pretrained(folder)


@pytest.fixture
def group(folder):
    """The references of a run of ours and of a Llama, which share no tokenizer."""
    run = our_run()
    bpe(save_model("llama", Path("llama")))
    return str(run.path), LLAMA


def our_run(level="byte", **settings):
    Path("shared.txt").write_bytes(TEXT.encode())
    write_spec(settings, corpus={"name": "mine", "path": "shared.txt", "level": level})
    return finished()


def asked(**changes):
    options = {"contexts": (16, 32, 48), "tokens": 24, "device": "cpu", **changes}
    return ReclRequest(groups=(), **options)


def alone(ref, tokens):
    """Losses of all tokens but the first, fed alone in one segment."""
    model = ref.load(CPU).model
    tokens_BT = torch.as_tensor(np.asarray(tokens, dtype=np.int64))[None]
    if ref.pretrained is not None:
        return model.token_losses(tokens_BT)[0].numpy()
    with torch.no_grad():
        hidden, _ = model(tokens_BT[:, :-1], model.initial_state(1, AttentionSpan(mem_len=0)))
        return model.losses(hidden, tokens_BT[:, 1:])[0].numpy()


def test_all_models_are_scored_on_the_same_bytes(group):
    found = {name: each.losses for name, each in losses_of_all(group, asked()).items()}
    ours, llama = (found[name] for name in group)
    assert ours.positions.tolist() == llama.positions.tolist()
    assert ours.bytes.tolist() == llama.bytes.tolist()
    corpus = prepare(CorpusConfig(name="mine", path="shared.txt", level="byte"))
    content = shared_text(corpus, "test").content.decode()
    cut = {name: resolve(name).tokenizer().encode(content) for name in group}
    shared = np.array(sorted({0, *set.intersection(*(set(ends) for _, ends in cut.values()))}))
    grid = {
        int(shared[shared >= p][0]): p for p in range(len(content.encode()) // 16 * 16 - 16, 0, -16)
    }
    for name, losses in found.items():
        ids, ends = cut[name]
        ends = [0, *ends.tolist()]
        for c, t in [(0, 0), (1, 5), (2, len(losses.positions) - 1)]:
            start, length = int(losses.positions[t]), int(losses.bytes[t])
            begin = shared[shared >= grid[start] - losses.contexts[c]][0]
            tokens = ids[ends.index(begin) : ends.index(start + length)]
            target = ends.index(start + length) - ends.index(start)
            expected = alone(resolve(name), tokens)[-target:].sum()
            assert losses.losses[c, t] == pytest.approx(expected, abs=2e-4)
    assert ours.settings["unit"] == "bpb"
    assert ours.nats.mean() == pytest.approx(ours.losses.sum() / ours.bytes.sum() / 3, rel=1e-6)


def test_recl_says_that_it_counts_in_bytes(group):
    request = ReclRequest(
        (group,), contexts=(16, 32), tokens=400, split="train", device="cpu", out=Path("out")
    )
    published = run_recl(request)
    record = json.loads(Path("out/recl.json").read_text())
    assert record["unit"] == "bpb"
    assert "scored on the same bytes" in published.written.text
    assert "bytes_per_unit" in published.written.text
    assert "contexts_off_by_at_most" in published.written.text
    drawn = Path("out/figures").rglob("*.svg")
    text = "".join(each.read_text() for each in drawn)
    assert "context length (bytes)" in text
    assert "bits per byte" in text


def test_losses_are_kept_and_an_interrupted_call_goes_on(group, monkeypatch):
    once = losses_of_all(group, asked())

    def again(*_):
        raise AssertionError("computed again")

    twice = losses_of_all(group, asked(), again)
    assert all(np.array_equal(once[n].losses.losses, twice[n].losses.losses) for n in group)
    for path in Path().rglob("*-bytes-*.npz"):
        path.unlink()
    append, calls = PartialLosses.append, iter(range(3))

    def dying(self, losses):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        append(self, losses)

    monkeypatch.setattr(PartialLosses, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        losses_of_all(group, asked(batch_size=4))
    monkeypatch.setattr(PartialLosses, "append", append)
    seen = []
    resumed = losses_of_all(group, asked(batch_size=4), lambda _, done, total: seen.append(done))
    assert seen[0] == 12
    for name in group:
        np.testing.assert_allclose(
            resumed[name].losses.losses, once[name].losses.losses, rtol=0, atol=1e-4
        )


def test_an_attention_length_holds_for_models_with_several_tokenizers(group):
    def nats(models, **options):
        found = losses_of_all(models, asked(corpus="shared.txt", **options))
        return np.stack([found[name].losses.nats for name in models])

    assert (nats(group) - nats(group, attention_length=3)).std(axis=(1, 2)).min() > 1e-3
    save_model("llama", Path("bytes"), seed=2)
    models = (LLAMA, "hf:bytes")
    near, sinks = (nats(models, attention_length=3, sinks=each) for each in (None, 2))
    assert (near - sinks).std(axis=(1, 2)).min() > 1e-3


def test_models_of_one_tokenizer_are_scored_by_token(group):
    bpe(save_model("gpt2", Path("gpt2")))
    pair = (LLAMA, "hf:gpt2")
    found = losses_of_all(pair, asked(corpus="shared.txt", contexts=(8, 16)))
    assert all(each.losses.bytes is None for each in found.values())


def test_a_model_of_characters_or_words_joins_them(group, folder):
    words = our_run("word", **{})
    found = losses_of_all((str(words.path), LLAMA), asked(contexts=(16, 32), tokens=8))
    losses = found[LLAMA].losses
    assert losses.settings["text"] == "tokens joined"
    assert losses.bytes.tolist() == found[str(words.path)].losses.bytes.tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts": (16, 1024)}, "hf:llama: context 1,024 is beyond its 63 positions"),
        ({"positions": np.array([64])}, "loss files beside models with several tokenizers"),
        ({"contexts": (16, 10**6)}, "1000000 is beyond the split, which has 1,410 bytes"),
    ],
)
def test_what_cannot_be_is_refused(group, changes, words):
    with pytest.raises(UserError, match=words):
        losses_of_all(group, asked(**changes))


def test_without_a_shared_text_a_corpus_is_asked_for(group):
    bpe(save_model("gpt2", Path("gpt2")), bos=False)
    tokenizer = json.loads(Path("gpt2/tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()  # another tokenizer
    Path("gpt2/tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match="hf:llama: was not trained here; give --corpus"):
        losses_of_all((LLAMA, "hf:gpt2"), asked())

"""`generate --samples`: contexts of a split, what follows there, and teacher forcing over both."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.models.pretrained.architectures import save_model
from tests.runs.trial import finished, write_spec
from txlbench.commands.generate import GenerateRequest, generate_text
from txlbench.commands.model_ref import resolve
from txlbench.commands.samples import SamplesRequest, draw_samples
from txlbench.commands.texts import read_text
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError

ASKED = SamplesRequest(
    "", samples=2, prompt_tokens=20, tokens=12, split="all", device="cpu", command="typed"
)


def asked(settings=None, /, **changes):
    top = {"corpus": changes.pop("level_of")} if "level_of" in changes else {}
    write_spec(settings, **top)
    return replace(ASKED, model=str(finished().path), **changes)


KINDS = {
    "xl": {},
    "short memory": {"train.mem_len": 3},
    "same length": {"model.same_length": True},
    "absolute": {"model.encoding": "absolute", "train.recurrence": False},
    "rope": {"model.encoding": "rope"},
    "lstm": {"model.kind": "lstm"},
    "shift": {"model.memory": "shift"},
    "compressive": {"model.memory": "compressive"},
    "sinks": {"model.memory": "sinks", "model.sinks": 2},
}


USUAL = ("short memory", "absolute", "sinks")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind in USUAL else pytest.mark.full) for kind in KINDS],
)
def test_teacher_forcing_draws_every_token_again(folder, kind):
    request = asked(KINDS[kind])
    made = draw_samples(request)
    ids = read_text(resolve(request.model), None, None, "all").ids
    assert made.warnings == ()
    assert len({each.place for each in made.samples}) == 2
    for number, each in enumerate(made.samples):
        context, reference = ids[each.place :][:20], ids[each.place + 20 :][:12]
        assert each.context == bytes(context.tolist()).decode()
        assert each.reference == bytes(reference.tolist()).decode()
        assert (len(each.ids), each.agreeing) == (12, 12)
        prompt = GenerateRequest(
            request.model, prompt=each.context, tokens=12, seed=1 + number, device="cpu"
        )
        assert generate_text(prompt).ids == list(each.ids)


def test_the_record_has_the_number_format_unless_it_is_fp32(folder):
    request = asked()
    assert "precision" not in draw_samples(request).content
    assert draw_samples(replace(request, precision="bf16")).content["precision"] == "bf16"


def test_losses_are_those_of_one_pass_over_all(folder):
    request = asked(mem_len=40)
    (made, _) = draw_samples(request).samples
    ref = resolve(request.model)
    ids, model = read_text(ref, None, None, "all").ids, ref.open(torch.device("cpu"))
    for behind, loss in ((made.ids, made.loss), (None, made.reference_loss)):
        after = ids[made.place + 20 :][:12].tolist() if behind is None else behind
        tokens = torch.tensor([[*ids[made.place :][:20].tolist(), *after]])
        with torch.no_grad():
            hidden, _ = model(tokens[:, :-1], model.initial_state(1, AttentionSpan(mem_len=0)))
            losses = model.losses(hidden, tokens[:, 1:])
        assert loss == pytest.approx(float(losses[0, 19:].mean()), abs=1e-5)


def test_words_are_shown_as_people_write_them(folder):
    text = 'He said , " it is n\'t 1 @,@ 200 m ( or so ) . "\n = Title = \n'
    (folder / "mine.txt").write_text(text * 60)
    corpus = {"name": "mine", "path": "mine.txt", "level": "word"}
    made = draw_samples(asked(level_of=corpus, prompt_tokens=60, tokens=5))
    shown = made.samples[0].context
    assert 'He said, "it isn\'t 1,200 m (or so)."\n= Title =\n' in shown
    assert made.unit == "ppl"


@pytest.mark.parametrize("bos", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_pretrained_model_draws_with_its_own_cache(folder, bos):
    write_spec()
    path = save_model("llama", folder / "model", bos=bos)
    request = replace(ASKED, model=f"hf:{path}", corpus="mine.txt", tokens=8)
    made = draw_samples(request)
    assert made.warnings == ()
    ids = read_text(resolve(f"hf:{path}"), "mine.txt", None, "all").ids
    network = resolve(f"hf:{path}").open(torch.device("cpu")).network
    for each in made.samples:
        prompt = [256] * bos + ids[each.place :][:20].tolist()
        tokens = torch.tensor([[*prompt, *each.ids]])
        with torch.no_grad():
            logits = network(tokens).logits[0, len(prompt) - 1 : -1]
        assert each.loss == pytest.approx(
            float(cross_entropy(logits, torch.tensor(each.ids))), abs=1e-5
        )
        likeliest = logits.topk(41).indices  # one of them may end texts.tolist()
        assert all(one in found for one, found in zip(each.ids, likeliest, strict=True))


def test_a_prompt_is_continued_in_several_ways(folder):
    made = draw_samples(asked(prompt="the model ", prompt_tokens=None, samples=3))
    assert [each.context for each in made.samples] == ["the model "] * 3
    assert len({each.ids for each in made.samples}) == 3
    assert {each.reference for each in made.samples} == {""}
    assert {each.reference_loss for each in made.samples} == {None}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prompt": "a"}, "--samples: continues a text; give --prompt-tokens, or one of"),
        ({"prompt_tokens": None}, "--samples: continues a text"),
        ({"prompt_tokens": 10**5}, r"--prompt-tokens 100,000 and --tokens 12: .* has [\d,]+ tok"),
    ],
)
def test_what_cannot_be_continued_is_refused(folder, changes, problem):
    with pytest.raises(UserError, match=problem):
        draw_samples(asked(**changes))


def test_the_seed_decides_the_places(folder):
    request = asked()
    places = [
        [each.place for each in draw_samples(replace(request, seed=seed)).samples]
        for seed in (1, 1, 2)
    ]
    assert places[0] == places[1] != places[2]
    assert np.ptp(places[0]) > 0

"""`context` from loss files and from trained runs to the record that is written."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands.loss_files import save as save_plain
from tests.reporting.context_records import DENSE, measured, save
from tests.runs.trial import execute_all, plan_of, write_spec, write_text
from txlbench.commands.context import (
    ContextRequest,
    _note_exponents,
    measure_context,
    run_context,
)
from txlbench.commands.model_ref import Capabilities, ModelRef
from txlbench.commands.recl import identity, measure_recl
from txlbench.commands.recl_request import ReclRequest, Subject
from txlbench.config.run_config import CorpusConfig
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.records.loss_file import LossFile
from txlbench.reporting.findings import report_finding

COARSE = (4, 8, 12, 16, 20, 24, 28, 32)


def asked(*names, **changes):
    return ContextRequest((names,), command="typed", **changes)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("files"))


def reasons(record, *measures):
    """The reason of each measure that is missing."""
    found = {each.measure: each.reason for group in record.groups for each in group.missing}
    return [found[name] for name in measures] if measures else found


def test_every_measure_that_a_rich_file_allows(record):
    (group,) = record.groups
    assert record.contexts == COARSE
    assert (group.models, group.best, group.tokens) == (("XL", "LSTM"), "LSTM", 1000)
    assert {law.model for law in group.power_laws} == {"XL", "LSTM"}
    assert {each.kind for each in group.classes} == {
        "occurrences in training",
        "rank in training",
        "distance to the last occurrence",
        "piece of a word",
        "place in the word",
    }
    assert group.view.is_text
    assert len(group.mutual_information.exponents) == 4
    assert list(reasons(record)) == ["ICL score", "LongPPL"]


def test_the_exponent_that_was_put_in_comes_out(record):
    """m(0) is that of the text, not of the made curve, so the first length is left aside."""
    for model, power in (("XL", 0.5), ("LSTM", 0.3)):
        (group,) = record.groups
        (found, _) = [e for e in group.mutual_information.exponents if e.model == model]
        nats = [each.value for each in found.nats]
        slope = np.log2(nats[-1] / nats[-2])
        start = nats[0] - 2 * (2 - 2**power) * 2**power  # what m(0) adds to each
        slope = np.log2((nats[-1] - start) / (nats[-2] - start))
        assert slope == pytest.approx(power, abs=0.1)


def test_recl_is_what_recl_measures(record, tmp_path):
    save(tmp_path / "XL.npz", 0.5, seed=1, settings='{"unit": "bpc"}')
    save(tmp_path / "LSTM.npz", 0.3, seed=2, settings='{"unit": "bpc"}')
    names = tuple(str(tmp_path / f"{name}.npz") for name in ("XL", "LSTM"))
    alone = measure_recl(ReclRequest((names,), contexts=COARSE))
    assert record.recl.groups == alone.groups


def test_plain_loss_files_say_what_they_lack(folder):
    save_plain(Path("a.npz"), seed=1)
    save_plain(Path("b.npz"), seed=2, reach=200)
    found = measure_context(asked("a.npz", "b.npz"))
    (group,) = found.groups
    assert group.curve("a").gain.value == pytest.approx(0.2, abs=0.01)
    assert reasons(found, "classes of tokens", "power law", "ICL score") == [
        "the text of the tokens is not known",
        "4 contexts from 100 to 400, and a fit needs 5 over a factor of 4",
        "needs contexts 50 and 500",
    ]
    assert "--dense L" in reasons(found, "L²M exponent")[0]


def test_too_few_tokens_leave_values_without_intervals(folder):
    save(Path("few.npz"), tokens=40)
    found = measure_context(asked("few.npz", contexts=COARSE))
    (group,) = found.groups
    assert found.recl is None
    assert "too few tokens" in found.recl_missing
    assert "too few tokens" in reasons(found, "intervals")[0]
    assert group.blocks is None
    assert group.curves[0].gain.value > 0
    assert group.curves[0].gain.low is None
    assert run_context(asked("few.npz", out=Path("out"))).path == Path("out/context.json")
    assert "too few tokens" in Path("out/context.html").read_text()


def test_one_context_is_little_but_no_error(folder):
    save(Path("one.npz"), contexts=(5,))
    found = measure_context(asked("one.npz"))
    assert "RECL compares at least two" not in (found.recl_missing or "")
    assert "one context" in found.recl_missing
    assert reasons(found, "key tokens") == ["one context only was measured"]
    write_json(Path("context.json"), found.content)
    report_finding(Path("context.json"), "typed")
    assert "one context only was measured" in Path("context.html").read_text()


def test_dense_contexts_that_are_not_there_are_missed_in_their_place(folder):
    save(Path("a.npz"), contexts=COARSE)
    found = measure_context(asked("a.npz", dense=16))
    assert found.groups[0].mutual_information is None
    assert "no losses at contexts 1, 2, 3" in reasons(found, "L²M exponent")[0]


def test_dense_contexts_are_seen_without_being_asked_for(folder):
    save(Path("a.npz"), contexts=DENSE)
    found = measure_context(asked("a.npz"))
    assert found.groups[0].mutual_information is not None
    assert found.contexts == DENSE


def test_files_that_do_not_agree_are_refused(folder):
    save(Path("a.npz"))
    save(Path("b.npz"), positions=np.arange(1000) + 400)
    with pytest.raises(UserError, match="positions differ"):
        measure_context(asked("a.npz", "b.npz"))


def test_another_question_has_another_place(folder):
    places = {identity(asked("a.npz", dense=dense)) for dense in (None, 8, 16)}
    assert len(places) == 3


def test_a_trained_run_knows_its_text(folder):
    write_text(Path("mine.txt"), words=6_000)
    write_spec(rows=[{"label": "XL"}])
    (run,) = plan = plan_of()
    execute_all(plan)
    request = asked(str(run.directory.path), contexts=(2, 4, 8, 16), tokens=900, dense=4)
    found = measure_context(request)
    (group,) = found.groups
    assert {each.kind for each in group.classes} >= {"place in the word"}
    assert group.mutual_information.counted > 1000
    assert group.mutual_information.empty == "unigram counts"
    assert group.view.is_text
    (kept, dense) = sorted(Path("results/trial").rglob("losses/*.npz"))
    stamps = [path.stat().st_mtime_ns for path in (kept, dense)]
    measure_context(request)
    assert [path.stat().st_mtime_ns for path in (kept, dense)] == stamps


def test_a_corpus_that_is_prepared_and_the_same_gives_the_text(folder):
    corpus = prepare(CorpusConfig(name="planted"))
    said = {"vocabulary": corpus.vocabulary.fingerprint, "settings": '{"corpus": "planted"}'}
    bare = {"ids": None, "pieces": None, "counts": None, **said}
    for name, checksum in (("same", corpus.checksum), ("other", "0" * 64)):
        save(Path(f"{name}.npz"), contexts=COARSE, corpus=checksum, **bare)
    found = measure_context(asked("same.npz"))
    kinds = {each.kind for each in found.groups[0].classes}
    assert {"rank in training", "distance to the last occurrence"} <= kinds
    found = measure_context(asked("other.npz"))
    assert reasons(found, "classes of tokens") == ["the text of the tokens is not known"]


def test_exponents_are_left_with_the_runs_they_are_of(folder, record):
    write_text(Path("mine.txt"), words=500)
    write_spec(rows=[{"label": "XL"}, {"label": "LSTM", "set": {"model.kind": "lstm"}}])
    runs = plan_of()
    group = [
        Subject("", LossFile(np.ones((1, 1)), np.ones(1), np.ones(1)), title=title, ref=ref)
        for title, run in zip(("XL", "LSTM"), runs, strict=True)
        for ref in [ModelRef("", Capabilities(1), Path(), str, print, run=run.directory)]
    ]
    for run in runs:
        run.directory.path.mkdir(parents=True)
    _note_exponents([group], record)
    for title, run, power in zip(("XL", "LSTM"), runs, (0.5, 0.3), strict=True):
        found = run.directory.read_exponent()
        (expected,) = [
            each.exponent
            for each in record.groups[0].mutual_information.exponents
            if (each.model, each.way) == (title, "corrected")
        ]
        assert (found.value, found.low, found.high) == (
            expected.value,
            expected.low,
            expected.high,
        )
        assert (found.length, found.way) == (16, "corrected")
        assert found.value == pytest.approx(power, abs=0.15)


def test_losses_that_are_kept_need_no_torch(folder):
    save(Path("a.npz"))
    code = (
        "import sys; from txlbench.commands.context import ContextRequest, measure_context; "
        "measure_context(ContextRequest((('a.npz',),), dense=16)); print(*sys.modules)"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"torch", "pandas"} & {*done.stdout.split()}

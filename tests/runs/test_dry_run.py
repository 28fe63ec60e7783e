"""A grid that the disk has no room for is refused before it starts.

A dry run refuses what the real call would, as far as that can be told without preparing.
"""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.runs.in_process import Watched, run_suite
from tests.runs.trial import execute_all, plan_of, snapshot, write_spec, write_text
from txlbench.cli.experiments import ablate
from txlbench.config.accelerators import accelerators_named
from txlbench.config.counting import (
    checkpoint_bytes,
    evaluation_flops,
    resume_bytes,
    token_flops,
    train_flops,
)
from txlbench.config.measurements import Measurement
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.machine import Devices
from txlbench.runs.ablation import ablate as run_ablation
from txlbench.runs.dry_run import (
    changed_texts,
    check_memory,
    check_space,
    cost_of,
    long_training,
)
from txlbench.runs.failure import readable
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.speed_probe import probe_plan

OUT = Path("results/trial")


def needed(jobs, free):
    """Whether `free` bytes are enough for spec.yaml."""
    plan = plan_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        check_space(OUT, plan, {run.id: 256 for run in plan}, jobs)


def test_checkpoints_of_all_runs_and_those_being_written_must_fit():
    write_spec(seeds=[1, 2, 3])
    config = plan_of()[0].config
    room = 3 * checkpoint_bytes(config, 256) + 2 * resume_bytes(config, 256)
    needed(2, room)
    with pytest.raises(UserError, match=r"results/trial: .*KiB free, but the checkpoints of 3"):
        needed(2, room - 1)
    with pytest.raises(UserError, match="--out"):
        needed(3, room)


def test_what_is_there_already_counts():
    write_spec({"model.d_model": 64})
    config = plan_of()[0].config
    room = checkpoint_bytes(config, 256) + resume_bytes(config, 256)
    (run,) = plan_of()
    with pytest.raises(UserError):
        needed(1, 0.5 * room)
    execute_all([run])
    (run.directory.path / "summary.json").unlink()
    needed(1, 0.5 * room)


def test_a_run_that_is_only_measured_needs_none():
    write_spec()
    execute_all(plan_of())
    write_spec({"evaluate.attention_lengths": [4, 12]})
    needed(1, 0)


@pytest.mark.usefixtures("one_process")
def test_nothing_is_started_or_written_on_a_disk_that_is_too_small():
    """A real disk, and a model that no disk can take."""
    write_spec({"model.d_inner": 2**42})
    with pytest.raises(UserError, match=r"free, but the checkpoints of 1 run take up to .* PiB"):
        run_suite()
    assert not OUT.exists()


def dry_run(*arguments):
    command = ["spec.yaml", "--dry-run", *arguments]
    return CliRunner().invoke(ablate, command, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, ("--device", "gpu"), "--device gpu: unknown"),
        ({}, ("--device", "cuda:x"), "--device cuda:x: unknown"),
        ({"corpus.path": "gone.txt"}, (), "gone.txt: no such file"),
        ({"model.cutoffs": [100, 300]}, (), "beyond the vocabulary of 256"),
    ],
)
def test_what_the_real_call_would_refuse_is_refused(settings, arguments, message):
    write_spec(settings)
    with pytest.raises(UserError) as caught:
        dry_run(*arguments)
    assert message in str(caught.value)


def test_a_run_on_an_edited_text_is_to_be_trained_anew(folder):
    write_spec()
    execute_all(plan_of())
    assert re.search(r"finished +nothing", dry_run())
    write_text(folder / "mine.txt", seed=2)
    before = snapshot(folder)
    assert re.search(r"finished +training", dry_run())
    assert "mine has changed since; it is trained anew" in dry_run()
    assert snapshot(folder) == before


def test_what_the_unprepared_text_decides_is_a_question_mark():
    """A vocabulary of words is known only then, and with it the parameters."""
    write_spec({"corpus.level": "word"})
    assert re.search(r"training +\? +\d", dry_run())


def test_texts_of_their_own_for_each_split_are_told_too(folder):
    for name in ("valid.txt", "test.txt"):
        write_text(folder / name, seed=3)
    write_spec({"corpus.valid": "valid.txt", "corpus.test": "test.txt"})
    execute_all(plan_of())
    assert changed_texts(plan_of(), "cpu") == {}
    write_text(folder / "test.txt", seed=4)
    assert len(changed_texts(plan_of(), "auto")) == 1


def test_the_dry_run_ends_with_what_training_takes(monkeypatch):
    monkeypatch.setattr("txlbench.runs.dry_run.cores", lambda: 2)
    write_spec(seeds=[1, 2])
    flops = 2 * train_flops(plan_of()[0].config, 256)
    disk = readable(2 * checkpoint_bytes(plan_of()[0].config, 256))
    assert dry_run().splitlines()[-1] == (
        f"2 runs to train: {flops:.1e} FLOPs, about 0:00 on 2 cores "
        f"(a guess: 50 GFLOP/s a core), {disk} of checkpoints"
    )
    execute_all(plan_of()[:1])
    last = dry_run().splitlines()[-1]
    assert last.startswith("1 run to train: ")
    assert "guess" not in last
    execute_all(plan_of()[1:])
    assert dry_run().splitlines()[-1] == "nothing to train"


def test_the_size_of_a_text_is_known_once_it_is_prepared():
    write_spec({"corpus.level": "char"})
    assert dry_run().endswith("once the text is prepared (`txlbench data prepare`)\n")
    (run,) = plan_of()
    size = len(prepare(run.config.corpus).vocabulary)
    flops = train_flops(run.config, size)
    assert f"1 run to train: {flops:.1e} FLOPs" in dry_run()


def test_the_paper_s_models_take_years_on_a_laptop(monkeypatch):
    monkeypatch.setattr("txlbench.runs.dry_run.cores", lambda: 4)
    request = Request(Path(__file__).parents[2] / "experiments/wt103.yaml")
    plan = describe_plan(open_experiment(request)[2])
    assert re.search(r"about \d+ (months|years) on 4 cores", str(cost_of(plan, "cpu")))
    assert "time unknown until a run is trained" in str(cost_of(plan, "cuda:0"))


def test_what_takes_days_is_said_before_it_starts(monkeypatch):
    write_spec({"train.max_step": 10**13})
    plan = describe_plan(plan_of())
    (warning,) = long_training(plan, "cpu")
    assert warning.startswith("1 run to train: ")
    assert "years" in warning
    write_spec()
    assert long_training(describe_plan(plan_of()), "cpu") == []


def test_evaluation_counts_every_measurement_and_validation():
    """One measurement by hand: 2 streams of 30 targets, each after a lead-in of 8 tokens."""
    model = plan_config().model
    layers = token_flops(model, 256, 8, 8, cached=True) - 2 * 256 * model.d_model
    streaming = Measurement(
        regime="streaming", split="test", tgt_len=8, stride=8, mem_len=8, batch_size=2, tokens=60
    )
    expected = (60 + 2 * 8) * layers + 60 * 2 * 256 * model.d_model
    assert evaluation_flops(model, 256, streaming, 1000) == pytest.approx(expected)
    windows = streaming.model_copy(update={"regime": "windows", "mem_len": 0, "stride": 2})
    alone = token_flops(model, 256, 8, 0, cached=True) - 2 * 256 * model.d_model
    expected = 15 * 2 * 8 * alone + 60 * 2 * 256 * model.d_model
    assert evaluation_flops(model, 256, windows, 1000) == pytest.approx(expected)


def plan_config():
    write_spec()
    return plan_of()[0].config


def test_evaluation_is_known_once_the_text_is_prepared():
    write_spec()
    (run,) = describe_plan(plan_of()).runs
    assert run.evaluation_flops is None
    assert "prepared" in run.unknown["evaluation_flops"]
    prepare(plan_of()[0].config.corpus)
    few = describe_plan(plan_of()).runs[0].evaluation_flops
    write_spec({"evaluate.attention_lengths": [4, 8, 12]})
    assert describe_plan(plan_of()).runs[0].evaluation_flops > few > 0


def test_accelerators_give_hours_at_the_utilisation_asked_for():
    write_spec({"train.precision": "bf16"})
    prepare(plan_of()[0].config.corpus)
    both = accelerators_named("a100,v100")
    (run,) = describe_plan(plan_of(), accelerators=both, utilisation=0.5).runs
    a100, v100 = run.accelerators
    assert (a100.precision, v100.precision) == ("bf16", "fp32")
    seconds = run.train_flops / (0.5 * 312e12) + run.evaluation_flops / (0.5 * 19.5e12)
    assert a100.hours == pytest.approx(seconds / 3600)
    assert a100.memory_fits
    write_spec({"model.d_inner": 10**9})
    (run,) = describe_plan(plan_of(), accelerators=both).runs
    assert not run.accelerators[0].memory_fits


@pytest.mark.full
@pytest.mark.alone
def test_a_probe_measures_each_shape_once_and_writes_nothing(folder):
    """Two seeds of one shape, trained for more steps than the probe takes."""
    write_spec({"train.max_step": 10**6}, seeds=[1, 2])
    prepare(plan_of()[0].config.corpus)
    before, told = snapshot(folder), []
    found = probe_plan(plan_of(), Devices(("cpu",), 2, 1), told.append, seconds=0.3)
    assert snapshot(folder) == before
    assert told == ["trial"]
    first, second = describe_plan(plan_of(), probed=found, jobs=2).runs
    assert first.probe == second.probe
    assert first.probe.threads == 1
    assert first.probe.steps > 3
    assert first.probe.training_hours == pytest.approx(10**6 * first.probe.step_seconds / 3600)
    assert first.probe.evaluation_hours > 0
    assert first.probe.memory_bytes > 10**8
    total = describe_plan(plan_of(), probed=found, jobs=2).total
    assert total.hours["this machine"] == pytest.approx(first.probe.hours)


def test_what_would_not_fit_is_not_tried_and_said():
    write_spec({"model.d_inner": 10**10})
    found = probe_plan(plan_of(), Devices(("cpu",), 1, 1))
    (reason,) = found.values()
    assert re.match(r"training takes about .* TiB of memory, this machine has .*", reason)
    (run,) = describe_plan(plan_of(), probed=found).runs
    assert run.unknown["probe"] == reason


@pytest.mark.parametrize(
    "option",
    [("--format", "json"), ("--probe",), ("--accelerator", "a100"), ("--utilisation", "0.9")],
)
def test_options_of_a_dry_run_are_refused_without_it(option):
    write_spec()
    with pytest.raises(UserError, match="goes with --dry-run"):
        CliRunner().invoke(ablate, ["spec.yaml", *option], catch_exceptions=False)
    assert not OUT.exists()


def told(gigabytes, jobs=1, **settings):
    """What `check_memory` says on a machine with so much memory."""
    write_spec({"train.precision": "fp32", **settings}, seeds=[1, 2])
    plan = plan_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txlbench.runs.dry_run.device_memory", lambda _: gigabytes * 10**9)
        sizes = {run.id: 256 for run in plan}
        return check_memory(plan, sizes, Devices(("cpu",), jobs, 1))


def test_a_training_that_memory_has_no_room_for_is_warned_of():
    """Weights of 16 * 10**7 * 2 numbers: 5.1 GB with gradients and Adam's moments."""
    wide = {"model.d_inner": 10**7}
    assert told(10, **wide) == []
    (warning,) = told(6, **wide)
    assert re.search(r"training takes .* GiB of memory \(about, on cpu\), .* 5.59 GiB", warning)
    assert "raise train.batch_chunk (1)" in warning
    (warning,) = told(2, **wide)
    assert re.search(r"training takes .*at least.*batch_chunk.*will probably fail", warning)
    (warning,) = told(8, jobs=2, **wide)
    assert re.search(r"2 trainings at once take .*at least.*--jobs 1", warning)


def test_segments_are_no_longer_than_a_stream_of_the_text():
    """Of 10**6 tokens: on this machine's own memory, by the catalogue and by a short text."""
    write_spec({"train.tgt_len": 10**6}, corpus="enwiki-sample")
    plan, devices = plan_of(), Devices(("cpu",), 1, 1)
    (warning,) = check_memory(plan, {run.id: 256 for run in plan}, devices)
    assert "lower train.batch_size" in warning
    write_spec({"train.tgt_len": 10**6})
    prepare(plan_of()[0].config.corpus)
    assert check_memory(plan_of(), {run.id: 256 for run in plan_of()}, devices) == []


def test_a_place_that_cannot_be_written_is_refused_before_the_corpus_is_prepared(folder):
    write_spec()
    (folder / "file").write_text("")
    with pytest.raises(UserError, match="file/results: not a directory; choose another --out"):
        run_suite(out=Path("file/results"))
    with pytest.raises(UserError, match="--device cuda:99"):
        run_ablation(Request(Path("spec.yaml"), device="cuda:99"), Watched())
    assert not (folder / "data").exists()


def test_an_empty_text_is_refused(folder):
    write_spec()
    (folder / "mine.txt").write_text("")
    with pytest.raises(UserError, match=r"mine\.txt: empty; give a text"):
        changed_texts(plan_of(), "cpu")

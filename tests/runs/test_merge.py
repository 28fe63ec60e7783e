"""Results of several machines: the union, each run whole, and nothing overwritten."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.records.as_record import append_line
from tests.reporting.laboratory import Laboratory
from tests.runs.trial import snapshot
from txlbench.errors import UserError
from txlbench.records.claim import claimed
from txlbench.records.experiment_directory import ExperimentDirectory, experiments_at
from txlbench.records.schema import Facts, RunState
from txlbench.runs.merge import merge
from txlbench.training.checkpoint import SCHEMA

OUT = Path("out")
ROWS = [{"label": "xl"}]


def machine(name, seeds, **changes):
    """The experiment `small` as another machine has it, finished for some seeds."""
    return Laboratory(Path(name)).finished(seeds=seeds, rows=ROWS, **changes)


def merged(*folders, out=OUT):
    return merge(experiments_at([Path(folder) for folder in folders]), out)


def refused(match, *folders):
    before = snapshot(Path())
    with pytest.raises(UserError, match=match) as caught:
        merged(*folders)
    assert snapshot(Path()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def copy(source, target):
    Path(target).mkdir(exist_ok=True)
    shutil.copytree(Path(source) / "small", Path(target) / "small")
    return ExperimentDirectory(Path(target) / "small")


def test_two_machines_make_the_union():
    one, two = machine("one", [1]), machine("two", [2, 3])
    one.add_commands(["txlbench ablate a.yaml"])
    two.add_commands(["txlbench ablate a.yaml", "txlbench ablate b.yaml"])
    (run,) = one.runs()
    run.losses.mkdir()
    (run.losses / "test.npz").write_bytes(b"losses")
    (run.path / "mlflow.json").write_text('{"store": "of machine one"}')
    (result,) = merged("one", "two")
    assert (len(result.copied), result.known, result.replaced) == (3, (), ())
    directory = ExperimentDirectory(OUT / "small")
    assert directory.read_spec().lines[0].configs[2].seed == 3
    assert {run.state for run in directory.runs()} == {RunState.FINISHED}
    assert directory.commands() == ["txlbench ablate a.yaml", "txlbench ablate b.yaml"]
    taken = directory.run(run.id)
    assert (taken.losses / "test.npz").read_bytes() == b"losses"
    assert not (taken.path / "mlflow.json").exists()
    assert not list(directory.runs_directory.glob(".*"))


def test_it_may_be_done_again_and_onto_itself():
    machine("one", [1])
    merged("one")
    before = snapshot(OUT)
    (again,) = merged("one", "out", "one/small")
    assert (again.copied, len(again.known)) == ((), 1)
    assert snapshot(OUT / "small" / "runs") == {
        name.removeprefix("small/runs/"): content
        for name, content in before.items()
        if name.startswith("small/runs/")
    }


def test_a_run_that_two_have_is_taken_once():
    machine("one", [1])
    copy("one", "two")
    (result,) = merged("one", "two")
    assert len(result.copied) == 1


def test_what_tells_only_of_the_machine_may_differ():
    machine("one", [1])
    (run,) = copy("one", "two").runs()
    run.write_facts(Facts(commit="another"))
    append_line(run.timings_file, step=100, time=5.0)
    (run.path / "log.txt").write_text("hello")
    (result,) = merged("one", "two")
    assert len(result.copied) == 1


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "summary.json", "new.json"])
def test_different_content_is_refused_naming_run_and_file(name):
    machine("one", [1])
    (run,) = copy("one", "two").runs()
    path = run.path / name
    text = path.read_text() if path.exists() else "x"
    path.write_text("# another\n" + text[:-2] + "9" + text[-1:])
    said = refused("two trainings of one run", "one", "two")
    assert run.id in said
    assert said.startswith(str(path))


@pytest.mark.parametrize("order", [("near", "far"), ("far", "near")])
def test_of_a_run_that_continues_another_the_farther_is_taken(order):
    far = machine("far", [1])
    (run,) = copy("far", "near").runs()
    whole = run.metrics_file.read_bytes()
    run.metrics_file.write_bytes(whole[: whole.index(b"\n", 300) + 1])
    (run.path / "summary.json").unlink()
    run.set_state(RunState.INTERRUPTED)
    merged(*order)
    (taken,) = ExperimentDirectory(OUT / "small").runs()
    assert snapshot(taken.path) == snapshot(far.runs()[0].path)


@pytest.mark.parametrize(("key", "same"), [("timings_bytes", True), ("metrics_bytes", False)])
def test_checkpoints_that_differ_in_lengths_of_time_logs_are_the_same_training(key, same):
    (run,) = machine("one", [1]).runs()
    run.checkpoints.mkdir()
    content = {"schema": SCHEMA, "model": {"a": torch.ones(2)}, "timings_bytes": 1}
    torch.save({**content, "metrics_bytes": 1}, run.checkpoints / "last.pt")
    (other,) = copy("one", "two").runs()
    torch.save({**content, "metrics_bytes": 1, key: 2}, other.checkpoints / "last.pt")
    if same:
        (result,) = merged("one", "two")
        assert result.copied == (run.id,)
    else:
        refused("two trainings of one run", "one", "two")


def test_a_nearer_run_of_the_output_is_set_aside_not_overwritten():
    machine("far", [1])
    near = copy("far", "out")
    (run,) = near.runs()
    (run.path / "summary.json").unlink()
    before = snapshot(run.path)
    (result,) = merged("far")
    assert result.replaced == (run.id,)
    assert snapshot(run.path.with_name(f"{run.id}.stale-1")) == before
    assert (run.path / "summary.json").exists()


def test_other_experiments_of_one_name_are_refused():
    machine("one", [1])
    machine("two", [1], train={"tgt_len": 16, "mem_len": 16, "max_step": 90})
    said = refused("only seeds may differ", "one", "two")
    assert said.startswith("two/small/spec.yaml: train: differs from one/small/spec.yaml")


def test_a_run_that_is_worked_on_is_refused():
    (run,) = machine("one", [1]).runs()
    with claimed(run.path):
        pass  # leaves the lock's file, which holds nothing
    with claimed(run.path):
        refused("still being worked on", "one")


@pytest.mark.parametrize("emptied", ["both", "one", "two"])
def test_a_directory_without_configuration_gives_way_to_a_run(emptied):
    """A full disk may leave one, on one machine or on both."""
    for name in ("one", "two"):
        (run,) = machine(name, [1]).runs()
        if emptied in (name, "both"):
            shutil.rmtree(run.path)
            run.path.mkdir()
    (result,) = merged("one", "two")
    (taken,) = ExperimentDirectory(OUT / "small").runs()
    assert result.copied == (taken.id,)
    assert (taken.state is RunState.FINISHED) is (emptied != "both")


@pytest.mark.parametrize("place", ["losses", "checkpoints/best.pt", "."])
def test_links_are_refused(place):
    (run,) = machine("one", [1]).runs()
    link = run.path / place
    if place == ".":
        run.path.rename("elsewhere")
        run.path.symlink_to(Path("elsewhere").absolute())
    else:
        link.parent.mkdir(exist_ok=True)
        link.symlink_to("/etc")
    refused("symbolic link", "one")


def test_a_damaged_run_is_copied_as_it_is():
    (run,) = machine("one", [1]).runs()
    run.metrics_file.write_text("nonsense\n")
    merged("one")
    (taken,) = ExperimentDirectory(OUT / "small").runs()
    assert taken.metrics_file.read_text() == "nonsense\n"

"""Checkpoints that were cut, zeroed or deleted: noticed, said once, and training ends the same."""

import random

import pytest
import torch

from tests.runs.in_process import run_suite
from tests.runs.test_resuming import check_same, interrupt
from tests.runs.trial import finished, prepared, stopping_after, write_spec
from txlbench.commands.model_ref import resolve
from txlbench.errors import ExitStatus, UserError
from txlbench.records.schema import RunState
from txlbench.runs.failure import record_failure
from txlbench.runs.train_run import execute
from txlbench.training.checkpoint import load

SEED = 11


def cut(path, chance):
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def zero(path, chance):
    path.write_bytes(bytes(path.stat().st_size))


def delete(path, chance):
    path.unlink()


def spoil(run, names, how, chance):
    for name in names:
        how(run.checkpoints / name, chance)


@pytest.mark.parametrize("how", [cut, zero, delete])
@pytest.mark.parametrize(
    ("names", "goes_on"),
    [(["last.pt"], "goes on from step 5"), (["last.pt", "previous.pt"], "starts again")],
    ids=["the newest", "both"],
)
def test_training_ends_as_if_nothing_had_happened(how, names, goes_on):
    """From the checkpoint before, or from the start; a part of the metric lines is made again."""
    if how is delete and len(names) == 2:
        goes_on = None  # nothing tells that there were any
    write_spec()
    straight, chance = finished("straight/trial"), random.Random(SEED)
    run, job = prepared("spoilt/trial")
    interrupt(job, 8)
    assert load(run.checkpoints / "previous.pt")["progress"]["step"] == 5
    spoil(run, names, how, chance)
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)
    assert [timing.step for timing in run.read_timings()] == [3, 6, 9, 12]
    if goes_on is None:
        assert run.read_status().notes == ()
        return
    (note,) = run.read_status().notes
    assert " and ".join(names) in note
    assert goes_on in note
    assert "\n" not in note
    kept = {path.name for path in run.checkpoints.glob("*.damaged")}
    assert kept == (set() if how is delete else {f"{name}.damaged" for name in names})


def test_cut_at_random_bytes_again_and_again():
    write_spec()
    straight, chance = finished("straight/trial"), random.Random(SEED)
    run, job = prepared("spoilt/trial")
    for step in (7, 2, 2, 2, 2):
        interrupt(job, step)
        cut(run.checkpoints / "last.pt", chance)
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)


def test_a_checkpoint_whose_metric_lines_are_lost_is_not_used():
    write_spec()
    straight = finished("straight/trial")
    run, job = prepared("spoilt/trial")
    interrupt(job, 8)
    content = run.metrics_file.read_bytes()
    run.metrics_file.write_bytes(content[:-1])
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)
    assert "goes on from step 5" in run.read_status().notes[0]


def trained(out, **settings):
    """A run that is trained, and not measured."""
    write_spec(settings)
    run, job = prepared(out)
    assert execute(job, stopping_after(13)) is RunState.INTERRUPTED
    assert run.read_summary().training is not None
    return run, job


@pytest.mark.parametrize("average", [None, 0.3])
def test_a_damaged_best_is_made_again_from_a_checkpoint_of_its_step(average):
    run, job = trained("spoilt/trial", **{"train.average_from": average})
    best = run.checkpoints / "best.pt"
    assert run.read_summary().training.best_step in (10, 12)
    before = load(best)
    cut(best, random.Random(SEED))
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, finished("straight/trial"))
    assert load(best)["progress"] == before["progress"]
    assert "made again" in run.read_status().notes[0]


def ruined():
    """A run whose best checkpoint is of an early step, and damaged."""
    run, job = trained(
        "spoilt/trial",
        **{"train.lr": 3.0, "train.warmup_step": 12, "train.eval_interval": 2},
    )
    assert run.read_summary().training.best_step < 10
    cut(run.checkpoints / "best.pt", random.Random(SEED))
    return run, job


def test_a_best_that_is_lost_for_good_fails_the_run_and_trains_again_when_asked():
    run, job = ruined()
    with pytest.raises(UserError, match=r"best\.pt: not a whole .*--retry. trains the run again"):
        execute(job, lambda: False)
    assert run.read_summary().training is None
    assert (run.path / "checkpoints.damaged-1" / "last.pt").exists()
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, finished("straight/trial"))


def test_the_failure_is_one_line():
    run, job = ruined()
    with pytest.raises(UserError) as caught:
        execute(job, lambda: False)
    assert record_failure(run, caught.value) is RunState.FAILED
    assert "\n" not in run.read_status().error.message


def test_a_summary_without_training_is_not_trained():
    """As it is left where the best checkpoint was lost."""
    write_spec()
    run = finished()
    run.write_summary(run.read_summary().without("training"))
    _, job = prepared()
    assert execute(job, lambda: False) is RunState.FINISHED
    assert run.read_summary().content.keys() == {"schema", "training", "results"}


def test_the_model_of_a_damaged_checkpoint_is_refused_in_one_line():
    """What `eval` and `recl` do with it, of a finished run too."""
    write_spec()
    run = finished()
    for name in ("best", "last"):
        zero(run.checkpoints / f"{name}.pt", None)
        with pytest.raises(UserError, match=rf"{name}\.pt: not a whole txlbench checkpoint; "):
            resolve(str(run.path), name).load(torch.device("cpu"))


@pytest.mark.usefixtures("one_process")
def test_the_ablation_says_once_what_was_damaged_and_finishes():
    write_spec()
    run, job = prepared()
    interrupt(job, 8)
    cut(run.checkpoints / "last.pt", random.Random(SEED))
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    (warning,) = watched.warnings
    assert "last.pt damaged" in warning
    assert "goes on from step 5" in warning

"""What a user may call a model, and the one model it leads to."""

import json
from pathlib import Path

import pytest
import torch

from tests.runs.trial import execute_all, finished, plan_of, write_spec
from txlbench.commands.model_ref import resolve
from txlbench.commands.names import find_run
from txlbench.errors import UserError

CPU = torch.device("cpu")


def keep_spec(run):
    """Puts the experiment file where `ablate` keeps it."""
    (run.path.parents[1] / "spec.yaml").write_text(Path("spec.yaml").read_text())


def test_a_run_by_directory_id_label_and_mlflow_id():
    write_spec()
    run = finished()
    keep_spec(run)
    (run.path / "mlflow.json").write_text(json.dumps({"store": "any", "run_id": "abc123"}))
    for reference in (str(run.path), f"trial/{run.id}", "trial/trial", "runs:/abc123"):
        assert find_run(reference).path.resolve() == run.path.resolve()


def test_the_loaded_model_is_the_best_checkpoint_in_evaluation_mode():
    write_spec()
    run = finished()
    loaded = resolve(str(run.path)).load(CPU)
    kept = torch.load(run.checkpoints / "best.pt", weights_only=True)["model"]
    assert all(torch.equal(loaded.model.state_dict()[name], kept[name]) for name in kept)
    assert not loaded.model.training
    assert loaded.ref.capabilities.vocabulary_size == 256
    assert (loaded.settings.train.tgt_len, loaded.settings.train.memory) == (8, 8)


def test_the_last_checkpoint_is_the_end_of_training():
    write_spec({"train.eval_interval": 12})
    run = finished()
    best, last = (
        resolve(str(run.path), name).load(CPU).model.state_dict() for name in ("best", "last")
    )
    assert all(torch.equal(best[name], last[name]) for name in best)  # one validation, at the end


def test_a_label_of_several_seeds_is_refused_with_their_names():
    write_spec(seeds=[1, 2])
    runs = plan_of()
    execute_all(runs)
    keep_spec(runs[0].directory)
    with pytest.raises(UserError) as refused:
        find_run("trial/trial")
    assert all(f"trial/{run.id}" in str(refused.value) for run in runs)


@pytest.mark.parametrize("reference", ["nothing", "trial/none", "runs:/none", "a/b/c", ""])
def test_what_is_no_model_is_refused_in_one_line(reference):
    write_spec()
    run = finished()
    keep_spec(run)
    with pytest.raises(UserError) as refused:
        resolve(reference).load(CPU)
    assert "\n" not in str(refused.value)
    assert reference in str(refused.value)


def test_a_misspelt_label_gets_the_nearest_one():
    write_spec()
    run = finished()
    keep_spec(run)
    with pytest.raises(UserError, match="did you mean 'trial'"):
        find_run("trial/tril")


def test_a_row_that_is_not_trained_yet_says_so():
    write_spec()
    (run,) = plan_of()
    run.directory.path.mkdir(parents=True)
    keep_spec(run.directory)
    with pytest.raises(UserError, match=r"not trained yet; txlbench ablate .*spec\.yaml"):
        find_run("trial/trial")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(value):
    write_spec()
    run = finished()
    path = run.checkpoints / "best.pt"
    content = torch.load(path, weights_only=True)
    content["model"]["blocks.0.attention.q_net.weight"][0, 0] = value
    torch.save(content, path)
    with pytest.raises(UserError, match=r"best\.pt: blocks\.0\.attention\.q_net\.weight: NaN or "):
        resolve(str(run.path)).load(CPU)

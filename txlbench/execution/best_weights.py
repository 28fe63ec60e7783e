"""The weights that a run is measured with: its best checkpoint, made again if it is damaged."""

from typing import Any

from txlbench.errors import UserError
from txlbench.records.run_directory import RunDirectory
from txlbench.training.checkpoint import SCHEMA, load, place, write_best
from txlbench.training.checkpoint_set import CheckpointSet


def best_checkpoint(run: RunDirectory) -> dict[str, Any]:
    """The content of the best checkpoint.

    A damaged one is written again from the last or the previous checkpoint if that is of the
    same step. If neither is, the checkpoints are set aside and the run counts as not trained.

    Raises:
        UserError: in the latter case.
    """
    checkpoints = CheckpointSet(run.checkpoints)
    try:
        return load(checkpoints.best)
    except UserError as error:
        step = run.read_summary().get("training", {}).get("best_step")
        for _, content in checkpoints.newest_first():
            if content is not None and content["progress"]["step"] == step:
                best = _best_of(content)
                write_best(checkpoints.best, best)
                run.note(f"{error.problem}; made again from a checkpoint of the same step")
                return best
        _forget_training(run)
        raise UserError(error.problem, "`txlbench ablate --retry` trains the run again") from error


def _best_of(last: dict[str, Any]) -> dict[str, Any]:
    """What was the best checkpoint when `last` was written at the same step."""
    own, average = last["model"], last["average"]
    averaged = average["weights"] if average is not None and average["count"] else {}
    # A weight that two layers share has two names, but a mean under one of them only.
    means = {place(own[name]): mean for name, mean in averaged.items()}
    weights = {name: means.get(place(weight), weight) for name, weight in own.items()}
    return {"schema": SCHEMA, "model": weights, "progress": last["progress"]}


def _forget_training(run: RunDirectory) -> None:
    """Sets the checkpoints aside, as training must begin anew to come by the best one again."""
    number = 1
    while (aside := run.path / f"checkpoints.damaged-{number}").exists():
        number += 1
    run.checkpoints.rename(aside)
    summary = run.read_summary()
    summary.pop("training", None)
    run.write_summary(summary)

"""What the processes of a world check together, started by `tests/test_world.py`.

Called as `python -m tests.training.ranks FOLDER` in each. Trainings alone and shared are compared
in float64, by what they log and by their memories.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.trial import CPU, VOCABULARY, Recorder, config, state_of, streams
from txlbench.config.measurements import training_regime, training_span
from txlbench.evaluation.scoring import score
from txlbench.training.checkpoint import load, restore, save_last, whole_memories
from txlbench.training.loop import Diverged, Settings, train
from txlbench.training.optimisation import weight_average
from txlbench.training.state import empty_memories
from txlbench.world import ALONE, join

DROPOUT = {"dropout": 0.3, "dropatt": 0.2}
LSTM = {"kind": "lstm", "wdrop": 0.3, "dropout": 0.2, "dropouth": 0.2, "dropouti": 0.1}
RESETS = {"memory_reset": 0.4, "memory_reset_from": 0.2}
CASES = {
    "no dropout": ({}, {}),
    "no dropout, in chunks": ({}, {"batch_chunk": 2}),
    "dropout": (DROPOUT, {}),
    "dropout, in chunks": (DROPOUT, {"batch_chunk": 2}),
    "half loss": (DROPOUT, {"loss": "half", "mem_len": 4}),
    "resets": (DROPOUT, RESETS),
    "resets, in chunks": (DROPOUT, {**RESETS, "batch_chunk": 2}),
    "averaged weights": ({}, {"average_from": 0.5}),
    "auxiliary losses": (DROPOUT, {"loss": "half", "aux_layers": True, "aux_positions": True}),
    "variational dropout": ({**DROPOUT, "variational": True, "dropoute": 0.2}, {}),
    "no recurrence": (DROPOUT, {"recurrence": False}),
    "shaw": ({"encoding": "shaw", **DROPOUT}, {}),
    "absolute": ({"encoding": "absolute", **DROPOUT}, {"recurrence": False}),
    "al-rfou": ({"encoding": "al-rfou", **DROPOUT}, {"recurrence": False}),
    "pre-LN": ({"pre_lnorm": True, **DROPOUT}, {}),
    "LSTM": (LSTM, {"loss": "half", "batch_chunk": 2}),
    "QRNN": ({"kind": "qrnn", "dropout": 0.2, "dropouth": 0.2, "dropouti": 0.1}, {}),
    "gated delta": ({"kind": "gated-delta", "dropout": 0.2}, {"loss": "half"}),
    "adaptive softmax": ({"cutoffs": [3, 7], "div_val": 2, **DROPOUT}, {}),
}
EXACT, ROUNDED = 1e-9, 1e-6
"""Of what is computed in float64 throughout, and of losses, which are summed up in float32."""
STRAIGHT = config(DROPOUT, log_interval=1, eval_interval=3, batch_size=8, batch_chunk=2, **RESETS)


class Noted:
    """Streams that note the tokens of every batch they give."""

    def __init__(self, run):
        self.batches, self.given = streams(run), []

    def __getitem__(self, step):
        self.given.append((step, self.batches[step].tokens.tolist()))
        return self.batches[step]


def new_state(run, world):
    state = state_of(run, torch.float64)
    state.memories = empty_memories(state.model, run.train, training_span(run), world)
    if run.train.average_from is not None:
        state.average = weight_average(state.model)
    return state


def measured(run, state, world, **settings):
    """The score of a validation text in 3 streams, or windows."""
    ids = np.random.default_rng(8).integers(VOCABULARY, size=90)
    regime = training_regime(run, "valid").model_copy(update={"batch_size": 3})
    return score(state.evaluated, ids, regime, run.model.n_layer, CPU, world=world, **settings)


def trained(run, world, state=None, stop_at=None):
    """Trains, with real validations; returns lines, state, batches and whether it was finished."""
    state, recorder, batches = state or new_state(run, world), Recorder(stop_at=stop_at), Noted(run)
    settings = Settings(run.train, training_span(run), CPU, "fp32", run.model.n_layer, world)
    hooks = replace(recorder.hooks(state), validate=lambda: measured(run, state, world).loss)
    done = train(state, batches, settings, hooks)
    return recorder.lines, state, batches.given, done


def assert_same(one, other):
    assert [line.keys() for line in one] == [line.keys() for line in other]
    for line, again in zip(one, other, strict=True):
        for key, value in line.items():
            tolerance = ROUNDED if key.endswith("loss") else EXACT
            np.testing.assert_allclose(again[key], value, rtol=tolerance, err_msg=f"{key}: {line}")


def check_what_is_sent(world, folder):
    rank, size = world.rank, world.size
    assert world.own(list(range(2 * size))) == [2 * rank, 2 * rank + 1]
    sums, counts = world.total(np.array([[0.5, rank]]), np.array([2**40 + rank]))
    assert sums.tolist() == [[size / 2, sum(range(size))]]
    assert counts.tolist() == [size * 2**40 + sum(range(size))]
    assert world.agree(rank == 1, False, rank == 0) == (True, False, True)
    rows = torch.full((rank, 3), float(rank))  # none of rank 0
    assert torch.equal(world.whole(rows)[:1], torch.ones(1, 3))
    assert len(world.whole(rows)) == sum(range(size))
    assert world.tell("ü last.pt" if world.writes else "ignored") == "ü last.pt"
    assert world.tell("") == ""


def check_trainings(world, folder):
    for name, (model, settings) in CASES.items():
        run = config(model, log_interval=1, eval_interval=3, batch_size=8, **settings)
        (alone, expected, _, _), (shared, state, _, _) = trained(run, ALONE), trained(run, world)
        try:
            assert_same(alone, shared)
            whole = whole_memories(state, world)
            for one, other in zip(whole_memories(expected), whole, strict=True):
                for key, rows in one.items():
                    np.testing.assert_allclose(other[key], rows, EXACT, EXACT, err_msg=key)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def check_a_request_of_one_process_stops_all_at_its_step(world, folder):
    last = world.size - 1
    _, state, _, done = trained(STRAIGHT, world, stop_at=2 if world.rank == last else None)
    assert (done, state.progress.step) == (False, 2)


def check_any_number_goes_on_from_any(world, folder):
    straight, _, order, _ = trained(STRAIGHT, ALONE)
    for number, (first, second) in enumerate([(world, ALONE), (ALONE, world)]):
        lines, state, batches, _ = trained(STRAIGHT, first, stop_at=4)
        path = folder / f"{number}.pt"
        memories = whole_memories(state, first)
        if world.writes:
            save_last(path, state, 0, memories=memories)
        world.tell("")
        again = new_state(STRAIGHT, second)
        restore(load(path), again, second)
        more, _, rest, _ = trained(STRAIGHT, second, again)
        assert_same(straight, lines + more)
        assert batches + rest == order


def check_all_diverge_at_the_same_step(world, folder):
    state, calls = new_state(STRAIGHT, world), []

    def poison(gradient):
        calls.append(gradient)
        return gradient * (float("inf") if world.rank == 1 and len(calls) == 5 else 1)

    next(state.model.blocks[0].parameters()).register_hook(poison)
    with pytest.raises(Diverged, match=r"^the gradient's norm is (inf|nan) at step 3$"):
        trained(STRAIGHT, world, state)


def check_every_loss_of_an_evaluation_is_kept(world, folder):
    for settings in ({}, {"recurrence": False}):
        run = config(**settings)
        state = new_state(run, ALONE)
        state.model.eval()
        one, other = (measured(run, state, each, keep_losses=True) for each in (ALONE, world))
        assert one.tokens == other.tokens == 89
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_allclose(one.losses, other.losses, rtol=ROUNDED)
        np.testing.assert_allclose(one.by_position, other.by_position, rtol=ROUNDED)


def main(folder):
    torch.set_num_threads(1)
    world = join(CPU)
    checks = [value for name, value in globals().items() if name.startswith("check_")]
    for check in checks:
        check(world, Path(folder))
    world.leave()
    print(len(checks), "checks")


if __name__ == "__main__":
    main(sys.argv[1])

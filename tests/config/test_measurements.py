"""What is measured on a model, and that each measurement has one name."""

from typing import Any

import pytest

from tests.config.experiments import run
from txlbench.config.base import RopeScaling
from txlbench.config.measurements import (
    Measurement,
    all_measurements,
    at_attention_length,
    attention_lengths,
    by_position,
    distance_met,
    skipped_lengths,
    training_regime,
)

RECURRENT = {"tgt_len": 8, "mem_len": 12}
ALONE = {"tgt_len": 8, "recurrence": False}


def test_the_training_regime_with_recurrence_is_as_trained():
    config = run(
        model={"clamp_len": 5, "same_length": True},
        train=RECURRENT,
        evaluate={"tgt_len": 4, "mem_len": 3, "clamp_len": 2, "batch_size": 3, "tokens": 99},
    )
    assert training_regime(config, "valid") == Measurement(
        regime="streaming",
        split="valid",
        tgt_len=8,
        stride=8,
        mem_len=12,
        same_length=True,
        clamp_len=5,
        batch_size=3,
        tokens=99,
    )


@pytest.mark.parametrize(
    ("loss", "tgt_len", "stride"), [("full", 8, 8), ("half", 8, 4), ("half", 7, 4), ("half", 1, 1)]
)
def test_without_recurrence_windows_move_on_by_what_was_trained(
    loss: str, tgt_len: int, stride: int
):
    config = run(train={"tgt_len": tgt_len, "recurrence": False, "loss": loss})
    measured = training_regime(config, "test")
    assert (measured.regime, measured.mem_len) == ("windows", 0)
    assert (measured.tgt_len, measured.stride) == (tgt_len, stride)
    assert by_position(config, "test").stride == tgt_len


def test_with_recurrence_half_loss_is_evaluated_on_every_position():
    measured = training_regime(run(train={**RECURRENT, "loss": "half"}), "test")
    assert (measured.tgt_len, measured.stride, measured.mem_len) == (8, 8, 12)


@pytest.mark.parametrize("length", [1, 5, 40])
def test_an_attention_length_with_recurrence_is_exactly_that_many_keys(length: int):
    config = run(train=RECURRENT, evaluate={"tgt_len": 4, "clamp_len": 6})
    measured = at_attention_length(config, "test", length)
    assert (measured.regime, measured.mem_len, measured.same_length) == ("streaming", length, True)
    assert (measured.tgt_len, measured.stride, measured.clamp_len) == (4, 4, 6)
    as_trained = at_attention_length(run(train=RECURRENT), "test", length)
    assert as_trained.tgt_len == 8


@pytest.mark.parametrize(
    ("length", "given", "stride"),
    [(1, None, 1), (3, None, 1), (40, None, 10), (40, 1, 1), (40, 7, 7), (3, 7, 3)],
)
def test_an_attention_length_without_recurrence_is_a_window(
    length: int, given: int | None, stride: int
):
    config = run(train=ALONE, evaluate={"stride": given, "tgt_len": 4})
    measured = at_attention_length(config, "test", length)
    assert (measured.regime, measured.mem_len, measured.same_length) == ("windows", 0, False)
    assert (measured.tgt_len, measured.stride) == (length, stride)


@pytest.mark.parametrize(
    ("train", "evaluate", "lengths"),
    [
        (RECURRENT, {}, (12,)),
        (RECURRENT, {"mem_len": 30}, (30,)),
        (RECURRENT, {"attention_lengths": [16, 4]}, (4, 16)),
        (ALONE, {}, (8,)),
        (ALONE, {"mem_len": 30}, (30,)),
    ],
    ids=str,
)
def test_the_lengths_swept(
    train: dict[str, Any], evaluate: dict[str, Any], lengths: tuple[int, ...]
):
    assert attention_lengths(run(train=train, evaluate=evaluate)) == lengths


def test_al_rfou_has_positions_for_tgt_len_tokens_only():
    def config(lengths: list[int], **train: Any) -> Any:
        return run(
            model={"encoding": "al-rfou"},
            train={**ALONE, **train},
            evaluate={"attention_lengths": lengths},
        )

    assert attention_lengths(config([4, 8, 9, 16])) == (4, 8)
    assert skipped_lengths(config([4, 8, 9, 16])) == (9, 16)
    assert attention_lengths(config([9, 16])) == (8,)
    assert skipped_lengths(config([9, 16])) == (9, 16)
    recurrent = config([4, 16], recurrence=True)
    assert attention_lengths(recurrent) == (4, 16)
    assert skipped_lengths(recurrent) == ()


def test_a_model_may_be_swept_with_its_own_clamp():
    assert at_attention_length(run(model={"clamp_len": 9}), "test", 4).clamp_len == 9
    config = run(model={"clamp_len": 9}, evaluate={"clamp_len": 0})
    assert at_attention_length(config, "test", 4).clamp_len == 0


def test_all_measurements_are_made_once_each_and_lengths_chosen_on_valid():
    config = run(train=ALONE, evaluate={"attention_lengths": [4, 8], "stride": 4})
    found = all_measurements(config)
    assert len({measured.key for measured in found}) == len(found)
    described = {(m.split, m.attention_length, m.tgt_len, m.stride) for m in found}
    assert described == {
        ("test", None, 8, 8),  # the regime, and positions: full loss makes them one
        ("valid", None, 8, 8),  # a candidate for the best, like the lengths
        ("valid", 4, 4, 4),
        ("valid", 8, 8, 4),
        ("test", 4, 4, 4),
        ("test", 8, 8, 4),
    }
    half = run(train={**ALONE, "loss": "half"}, evaluate={"attention_lengths": [4]})
    assert len(all_measurements(half)) == 5
    on_valid = run(train=ALONE, evaluate={"attention_lengths": [4], "split": "valid"})
    assert {measured.split for measured in all_measurements(on_valid)} == {"valid"}


def test_every_field_is_part_of_a_measurements_name():
    base = training_regime(run(train=RECURRENT), "test")
    changes: list[dict[str, Any]] = [
        {"regime": "windows"},
        {"split": "valid"},
        {"tgt_len": 9},
        {"stride": 4},
        {"mem_len": 3},
        {"same_length": True},
        {"attention_length": 8},
        {"clamp_len": 3},
        {"sinks": 2},
        {"rope": RopeScaling(kind="pi", factor=2.0, trained=8)},
        {"batch_size": 1},
        {"tokens": 5},
        {"exact": True},
        {"zero_memory": True},
    ]
    assert {name for change in changes for name in change} == set(Measurement.model_fields)
    keys = {base.key, *(base.model_copy(update=change).key for change in changes)}
    assert len(keys) == len(changes) + 1
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for key in keys)
    assert base.key.startswith("test-streaming-t8-")


def pairs_met(config, segments=8):
    """How often each distance is met in one segment once memory is full, pair by pair."""
    train, same_length = config.train, config.model.same_length
    counts: dict[int, int] = {}
    first = 0 if train.loss == "full" or train.aux_positions else train.tgt_len // 2
    start = segments * train.tgt_len
    for query in range(start + first, start + train.tgt_len):
        for key in range(start - train.memory, query + 1):
            distance = query - key
            if not same_length or distance < train.memory:
                counts[distance] = counts.get(distance, 0) + 1
    return counts


@pytest.mark.parametrize(
    ("train", "model", "expected"),
    [
        ({"tgt_len": 16, "recurrence": False}, {}, 8),
        ({"tgt_len": 15, "recurrence": False}, {}, 8),
        ({"tgt_len": 16, "mem_len": 16}, {}, 24),
        ({"tgt_len": 16, "mem_len": 50}, {}, 58),
        ({"tgt_len": 16, "mem_len": 50}, {"same_length": True}, 49),
        ({"tgt_len": 16, "recurrence": False, "loss": "half"}, {}, 12),
        ({"tgt_len": 16, "recurrence": False, "loss": "half", "aux_positions": True}, {}, 8),
    ],
)
def test_the_distance_met_is_that_of_pairs_counted_one_by_one(train, model, expected):
    config = run(train=train, model=model)
    counts = pairs_met(config)
    often = [distance for distance, count in counts.items() if 2 * count >= counts[1]]
    assert distance_met(config) == max(often) == expected


def test_recurrent_state_and_single_tokens_have_no_distances():
    assert distance_met(run(train={"tgt_len": 16}, model={"kind": "lstm"})) is None
    assert distance_met(run(train={"tgt_len": 1, "recurrence": False})) is None

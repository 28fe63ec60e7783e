"""Checkpoints fall due by steps, by minutes, and when they are asked for."""

import threading
import time

from tests.training.trial import config
from txlbench.training.save_schedule import SaveSchedule


def schedule(step=0, asked=None, **train):
    return SaveSchedule(config(**train).train, step, asked or threading.Event())


def test_by_steps_since_the_last_one():
    due = schedule(step=10, checkpoint_interval=3, checkpoint_minutes=None)
    assert [step for step in range(10, 15) if due.is_due(step)] == [13, 14]
    due.saved(14)
    assert [step for step in range(14, 19) if due.is_due(step)] == [17, 18]


def test_by_minutes_since_the_last_one():
    due = schedule(checkpoint_minutes=0.05 / 60)
    assert not due.is_due(1)
    time.sleep(0.06)
    assert due.is_due(2)
    due.saved(2)
    assert not due.is_due(3)


def test_when_asked_for_once():
    asked = threading.Event()
    due = schedule(asked=asked, checkpoint_minutes=None)
    assert not due.is_due(10**9)
    asked.set()
    assert due.is_due(1)
    due.saved(1)
    assert not due.is_due(2)


def test_every_ten_minutes_unless_told_otherwise():
    assert config().train.checkpoint_minutes == 10
    assert config().train.checkpoint_interval is None

"""What is timed is the work that the table says, by turns and without the warm-up."""

import itertools
import time

import pytest
import torch

from tests.models.subjects import VOCABULARY, small, transformer
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.timing import Setting, Task, reuse_task, time_by_turns, window_task

CPU = torch.device("cpu")


def setting(model, batch_size=2):
    return Setting(model, VOCABULARY, batch_size, CPU)


def watched(model):
    """Shapes of the tokens that the model reads, and the keys that its first layer sees."""
    read, keys = [], []
    model.embedding.register_forward_pre_hook(lambda _, given: read.append(tuple(given[0].shape)))
    tables = model.encoding.cached_tables
    model.encoding.cached_tables = lambda kept, count, *rest: (
        keys.append(count),
        tables(kept, count, *rest),
    )[1]
    return read, keys


def test_a_window_is_read_whole_for_one_token_a_stream():
    model = transformer("al-rfou")
    task = window_task(setting(model), 9)
    read, keys = watched(model)
    task.run()
    task.run()
    assert task.tokens == 2
    assert read == [(2, 9)] * 2
    assert keys == [9] * 2


@pytest.mark.parametrize(("tgt_len", "passes"), [(1, 16), (5, 4), (40, 1)])
def test_reuse_reads_segments_beside_a_full_memory(tgt_len, passes):
    model = transformer("xl")
    task = reuse_task(
        setting(model), AttentionSpan(mem_len=7, same_length=True), tgt_len, attends=True
    )
    read, keys = watched(model)
    task.run()
    assert task.tokens == 2 * tgt_len * passes
    assert read == [(2, tgt_len)] * passes
    assert keys == [7 + tgt_len] * passes


def test_a_recurrent_model_goes_on_from_its_state():
    task = reuse_task(setting(small(kind="lstm")), AttentionSpan(mem_len=7), 5, attends=False)
    task.run()
    assert task.tokens == 2 * 5 * 4


def test_tasks_take_turns_and_the_warm_up_is_not_counted(monkeypatch):
    order, clock = [], itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    tasks = {
        "one": Task(1, lambda: order.append("one")),
        "four": Task(4, lambda: order.append("four")),
    }
    seconds = time_by_turns(tasks, rounds=3, warm_up=2, device=CPU)
    assert order == ["one", "four"] * 5
    assert seconds == {"one": [1.0] * 3, "four": [0.25] * 3}

"""Side by side: results in order, one thread each, and PyTorch's threads as they were."""

import threading
import time

import pytest
import torch

from txlbench.evaluation.context_losses import side_by_side

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_parts():
    def compute(part):
        time.sleep(0.02 if part == 0 else 0)
        return part * part

    assert list(side_by_side(compute, range(6), CPU)) == [0, 1, 4, 9, 16, 25]


def test_each_part_has_one_thread_of_pytorch_and_two_are_computed_at_once():
    meeting = threading.Barrier(2, timeout=10)

    def compute(part):
        meeting.wait()
        return torch.get_num_threads()

    assert list(side_by_side(compute, range(4), CPU)) == [1, 1, 1, 1]
    assert torch.get_num_threads() == 2


def test_with_one_thread_parts_are_computed_here_one_after_the_other():
    torch.set_num_threads(1)
    here = threading.get_ident()
    found = list(side_by_side(lambda part: threading.get_ident(), range(3), CPU))
    assert found == [here] * 3


def test_an_interrupt_ends_the_work_that_has_not_begun():
    begun = []

    def compute(part):
        begun.append(part)
        time.sleep(0.01)
        return part

    def interrupted():
        for part in side_by_side(compute, range(1000), CPU):
            if part == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(begun) < 20
    assert torch.get_num_threads() == 2


def test_a_fault_in_a_part_comes_out():
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda part: 1 / part, [1, 0], CPU))
    assert torch.get_num_threads() == 2

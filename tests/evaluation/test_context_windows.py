"""Windows: every pair of context and position once, from as few windows as can be."""

import numpy as np
import pytest

from txlbench.evaluation.context_windows import Windows

GRIDS = [((4, 8, 12), 4, 9), ((4, 8, 12), 2, 9), ((1, 2), 1, 5), ((5,), 3, 4), ((16, 256), 240, 3)]


def windows_of(contexts, step, count):
    positions = contexts[-1] + step * np.arange(count)
    return Windows.of(np.array(contexts), positions), positions


@pytest.mark.parametrize(("contexts", "step", "count"), GRIDS, ids=str)
def test_windows_are_as_few_as_positions_and_differences_of_contexts(contexts, step, count):
    windows, _ = windows_of(contexts, step, count)
    most = count + (contexts[-1] - contexts[0]) // step
    assert len(windows) <= most
    dense = len(contexts) == 1 or contexts[1] - contexts[0] <= step * count
    assert (len(windows) == most) == dense


@pytest.mark.parametrize(("contexts", "step", "count"), GRIDS, ids=str)
def test_every_loss_comes_from_the_window_that_ends_at_its_position(contexts, step, count):
    windows, positions = windows_of(contexts, step, count)
    found = {}
    for w, start in enumerate(windows.starts):
        for e in range(windows.offsets[w], windows.offsets[w + 1]):
            found[int(windows.order[e])] = (int(windows.contexts[e]), int(start))
    assert len(found) == windows.offsets[-1] == len(contexts) * count
    for place, (context, start) in found.items():
        row, column = divmod(place, count)
        assert context == contexts[row]
        assert start + context == positions[column]


def test_losses_complete_windows_only_when_all_of_a_windows_are_there():
    windows, _ = windows_of((4, 8, 12), 4, 9)
    for losses in range(int(windows.offsets[-1]) + 1):
        whole = windows.whole(losses)
        assert windows.offsets[whole] <= losses
        assert whole == len(windows) or losses < windows.offsets[whole + 1]


def test_rows_say_which_window_of_a_part_each_loss_is_of():
    windows, _ = windows_of((4, 8, 12), 4, 9)
    part = windows.losses_of(2, 5)
    expected = np.searchsorted(windows.offsets, np.arange(part.start, part.stop), "right") - 1 - 2
    assert windows.rows_of(2, 5).tolist() == expected.tolist()

"""Partial losses: what was appended is there after a kill, and only one process appends."""

import numpy as np
import pytest

from txlbench.errors import UserError
from txlbench.evaluation.partial_losses import PartialLosses

VALUES = np.array([0.5, 2.25, 3.0], dtype=np.float32)


def test_a_later_process_finds_what_an_earlier_one_appended(tmp_path):
    path = tmp_path / "losses" / "x.part"
    with PartialLosses(path) as partial:
        partial.append(VALUES)
        partial.append(VALUES[:1])
    with PartialLosses(path) as partial:
        assert len(partial) == 4
        partial.truncate(2)
        partial.append(VALUES[2:])
        assert partial.read().tolist() == [0.5, 2.25, 3.0]


def test_a_number_that_was_cut_does_not_count(tmp_path):
    path = tmp_path / "x.part"
    path.write_bytes(VALUES.tobytes()[:-1])
    with PartialLosses(path) as partial:
        assert len(partial) == 2


def test_a_second_process_is_refused_while_the_first_is_at_it(tmp_path):
    path = tmp_path / "x.part"
    with PartialLosses(path), pytest.raises(UserError, match=r"x\.part: another process"):
        PartialLosses(path).__enter__()
    with PartialLosses(path) as partial:
        assert len(partial) == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"x\.part: (File exists|Not a directory); make room"):
        PartialLosses(tmp_path / "file" / "x.part").__enter__()

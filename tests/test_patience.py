"""Faults that pass are waited for, a while; others are told at once."""

import errno

import pytest

from txlbench import files
from txlbench.files import may_pass, patiently


class Disk:
    """Refuses `times` times, then takes what it is given."""

    def __init__(self, times, number=errno.ENOSPC):
        self.left, self.number, self.calls = times, number, 0

    def write(self):
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError(self.number, "refused")
        return "written"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(files, "WAITS", (0.001, 0.002, 0.003))


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_fault_that_passes_is_waited_for(times):
    disk = Disk(times)
    assert patiently(disk.write) == "written"
    assert disk.calls == times + 1


def test_it_ends():
    disk = Disk(10)
    with pytest.raises(OSError, match="refused"):
        patiently(disk.write)
    assert disk.calls == 4


def test_what_cannot_pass_is_told_at_once():
    disk = Disk(1, errno.ENOTDIR)
    with pytest.raises(NotADirectoryError):
        patiently(disk.write)
    assert disk.calls == 1


def test_waits_grow_and_are_seconds():
    import importlib

    waits = importlib.reload(files).WAITS
    assert sorted(waits) == list(waits)
    assert sum(waits) < 10


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EROFS, "read-only"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError("no number"), False),
        (ValueError(errno.ENOSPC), False),
    ],
)
def test_which_faults_may_pass(error, passes):
    assert may_pass(error) is passes

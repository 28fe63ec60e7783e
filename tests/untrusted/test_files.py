"""Files from strangers, changed in every way: only errors that the user can mend come out.

Nothing is written but what was asked for, and no header makes a loader take memory that the file
cannot fill. Examples are derived from the tests themselves, so that every call sees the same.
"""

import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.untrusted.mutations import mutated
from tests.untrusted.subjects import SUBJECTS, Subject
from txlbench.errors import UserError

LARGEST_MEMORY = 128 << 20
"""Bytes that reading a file of a few thousand may take."""
QUIET = settings(
    max_examples=15,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
THOROUGH = settings(QUIET, max_examples=150)
every_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


def attack(subject: Subject, folder: Path, data: st.DataObject) -> None:
    """Changes the subject's file once and reads it."""
    file = folder / subject.file
    content = file.read_bytes()
    changed = data.draw(mutated(content, subject.kind))
    before = {path for path in folder.rglob("*") if "out" not in path.parts}
    file.write_bytes(changed)
    peak = most_memory()
    try:
        subject.read(folder)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
    finally:
        file.write_bytes(content)
    assert most_memory() - peak < LARGEST_MEMORY
    assert {path for path in folder.rglob("*") if "out" not in path.parts} == before


def most_memory() -> int:
    """Bytes that this process ever had in memory at once."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
def folder(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The subject's files, alone in a folder."""
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    subject.make(made)
    subject.read(made)  # all is well so far
    return made


@every_subject
@pytest.mark.filterwarnings("ignore")
def test_a_changed_file_is_read_or_refused(subject: Subject, folder: Path) -> None:
    QUIET(given(st.data())(lambda data: attack(subject, folder, data)))()


@pytest.mark.full
@every_subject
@pytest.mark.filterwarnings("ignore")
def test_a_file_changed_in_many_ways_is_read_or_refused(subject: Subject, folder: Path) -> None:
    THOROUGH(given(st.data())(lambda data: attack(subject, folder, data)))()

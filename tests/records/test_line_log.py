"""Lines are whole and in order, on a disk that refuses some of them."""

import json

import pytest

from tests.disk import files_end_at
from txlbench.files import read_json_lines
from txlbench.records.line_log import LineLog


def steps(path):
    return [value["step"] for value, _ in read_json_lines(path)]


@pytest.fixture
def log(tmp_path):
    return LineLog(tmp_path / "metrics.jsonl")


def test_lines_are_there_at_once(log, tmp_path):
    for step in range(3):
        log.append({"step": step})
        assert steps(tmp_path / "metrics.jsonl") == list(range(step + 1))
    assert log.fault is None
    assert log.flush() == log.size == (tmp_path / "metrics.jsonl").stat().st_size


def test_refused_lines_wait_and_nothing_is_torn(log, tmp_path):
    path = tmp_path / "metrics.jsonl"
    log.append({"step": 0})
    whole = path.read_bytes()
    for room in range(12):  # bytes of the next line that still fit
        with files_end_at(len(whole) + room):
            log.append({"step": 1 + room})
            assert log.fault is not None
            with pytest.raises(OSError, match="too large"):
                log.flush()
        assert path.read_bytes() == whole
    log.append({"step": 13})
    assert log.fault is None
    assert steps(path) == list(range(14))


def test_it_can_be_cut_and_never_grows_by_that(log, tmp_path):
    path = tmp_path / "metrics.jsonl"
    log.cut(0)
    log.append({"step": 1})
    size = log.size
    log.append({"step": 2})
    log.cut(1000)
    assert steps(path) == [1, 2]
    log.cut(size)
    log.append({"step": 3})
    assert steps(path) == [1, 3]


def test_numbers_that_json_lacks_are_refused(log, tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        log.append({"loss": float("nan")})
    log.append({"step": 1})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1}

"""Directories of prepared corpora are whole or absent, whoever makes them at once."""

from pathlib import Path

import pytest

from txlbench.data.storage import create_directory, data_root


def test_the_data_root_is_the_users_cache_unless_chosen(monkeypatch, data_directory):
    assert data_root() == data_directory
    monkeypatch.delenv("TXLBENCH_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert data_root() == Path("/somewhere/txlbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "txlbench"


def test_a_directory_keeps_what_is_new_and_loses_what_is_scratch(tmp_path):
    def fill(new, scratch):
        (scratch / "fetched").write_text("x")
        (new / "kept").write_text("y")

    create_directory(tmp_path / "made", fill)
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "kept"]


def test_a_failure_leaves_nothing(tmp_path):
    def fill(new, scratch):
        (new / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_directory(tmp_path / "made", fill)
    assert list(tmp_path.iterdir()) == []


def test_whoever_finishes_first_wins(tmp_path):
    def fill_late(new, scratch):
        create_directory(tmp_path / "made", lambda new, scratch: (new / "by").write_text("first"))
        (new / "by").write_text("second")

    create_directory(tmp_path / "made", fill_late)
    assert (tmp_path / "made" / "by").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]

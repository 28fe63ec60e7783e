"""The index of results: it lists our pages, and never takes another program's place."""

import os
from pathlib import Path

import pytest

from tests.reporting.pages.parsed import Parsed
from txlbench.errors import UserError
from txlbench.reporting.pages.page import Answer, Page, Remark, render
from txlbench.reporting.pages.result_index import (
    entries,
    index_folders,
    refresh_index,
    write_index,
)


def write_page(path, title="A title"):
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = Answer((Remark("Lowest", (f"{title} <b>: 1",)),))
    path.write_text(render(Page(title, "h", "l", (answer,), (), "s")))


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    write_page(folder / "quick/report.html", "Quick & <dirty>")
    write_page(folder / "recl #1/recl.html")
    (folder / "quick/other.html").write_text("<title>no page of ours</title>")
    (folder / "alien").mkdir()
    (folder / "alien/report.html").write_text("<title>no page of ours</title>")
    return folder


def test_it_lists_pages_with_what_they_say(results):
    found = list(entries(results))
    assert [(each.link, each.kind, each.title) for each in found] == [
        ("quick/report.html", "experiment", "Quick & <dirty>"),
        ("recl #1/recl.html", "recl", "A title"),
    ]
    assert found[0].summary == "Lowest: Quick & <dirty> <b>: 1"
    parsed = Parsed(write_index(results).read_text())
    assert parsed.addresses == ["quick/report.html", "recl%20%231/recl.html"]
    assert "Quick & <dirty> <b>: 1" in parsed.text


def test_another_program_s_index_is_left_alone(results):
    (results / "index.html").write_text("<html><title>Mine</title></html>")
    refresh_index(results)
    with pytest.raises(UserError, match="not an index of results"):
        write_index(results)
    assert "Mine" in (results / "index.html").read_text()


def test_it_is_refreshed_where_results_lie_or_one_is_there(results, tmp_path):
    refresh_index(results)
    assert (results / "index.html").exists()
    other = tmp_path / "elsewhere"
    write_page(other / "quick/report.html")
    refresh_index(other)
    assert not (other / "index.html").exists()
    write_index(other)
    write_page(other / "more/report.html")
    refresh_index(other)
    assert "more/report.html" in (other / "index.html").read_text()


def test_folders_of_results_get_one(results, monkeypatch):
    monkeypatch.chdir(results.parent)
    assert index_folders([]) == [Path("results")]
    assert index_folders([Path("results/quick")]) == []
    assert index_folders([results, results / "quick"]) == [results]


def test_a_place_that_cannot_be_written_stops_nobody(results):
    (results / "index.html").mkdir()
    refresh_index(results)
    assert (results / "index.html").is_dir()


def test_pages_of_one_folder_have_names_of_their_own(results):
    write_page(results / "quick/recl.html")
    text = Parsed(write_index(results).read_text()).text
    assert "quick: recl" in text


def test_published_ones_tell_no_dates_and_come_out_the_same(results):
    path = write_index(results)
    assert "written (UTC)" in Parsed(path.read_text()).text
    text = write_index(results, is_dated=False).read_text()
    assert "written (UTC)" not in Parsed(text).text
    for page in results.glob("*/*.html"):
        os.utime(page, (1e9, 1e9))
    refresh_index(results)
    assert path.read_text() == text

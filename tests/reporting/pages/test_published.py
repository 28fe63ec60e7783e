"""The pages in experiments/, which open from a checkout."""

from pathlib import Path

import pytest

from tests.reporting.pages.parsed import Parsed

PUBLISHED = sorted((Path(__file__).parents[3] / "experiments").glob("*.html"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_it_needs_no_other_file(path):
    parsed = Parsed(path.read_text())
    inside = {f"#{each}" for each in parsed.ids}
    assert {each for each in parsed.addresses if not each.startswith("data:")} <= inside
    assert parsed.names["generator"] == "txlbench"
    assert f"command: txlbench ablate experiments/{path.stem}.yaml" in parsed.text
    assert path.stat().st_size < 1e6


def test_the_demo_is_among_them():
    assert "quick.html" in [path.name for path in PUBLISHED]

"""A laboratory that writes synthetic experiments into the test's own folder."""

from pathlib import Path

import pytest

from tests.reporting.laboratory import Laboratory


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path / "results")

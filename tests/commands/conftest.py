"""Commands work in folders as runs do."""

from tests.runs.conftest import folder, one_process

__all__ = ["folder", "one_process"]

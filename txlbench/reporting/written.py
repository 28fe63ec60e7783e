"""What a report of a finding made."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """Files, and the main table as plain text for a terminal."""

    paths: tuple[Path, ...]
    text: str

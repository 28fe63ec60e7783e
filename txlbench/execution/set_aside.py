"""A run that gives way to another is kept under another name."""

from pathlib import Path


def set_aside(path: Path) -> Path:
    """Renames the run directory at `path` to the first free `.stale-N`, and returns it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.stale-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside

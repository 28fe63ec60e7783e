"""Where prepared corpora lie, and how a directory comes into being whole or not at all."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def data_root() -> Path:
    """`$TXLBENCH_DATA`, else `txlbench` in the user's cache directory."""
    if chosen := os.environ.get("TXLBENCH_DATA"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "txlbench"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txlbench"


def create_directory(directory: Path, fill: Callable[[Path, Path], None]) -> None:
    """Makes `directory` appear with all that `fill(new, scratch)` writes into `new`.

    `scratch` is for files that are not kept. Several processes may do this at once: each works
    on its own copy, and the first to finish wins.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{directory.name}."
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=prefix) as temporary:
        new, scratch = Path(temporary, "new"), Path(temporary, "scratch")
        new.mkdir()
        scratch.mkdir()
        fill(new, scratch)
        try:
            new.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise

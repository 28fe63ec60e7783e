"""Plug-ins in tests: files written, and what they registered forgotten again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from txlbench.config import plugins
from txlbench.config.catalogue import CORPORA, ENCODINGS
from txlbench.config.kinds import KINDS


@contextmanager
def forgotten() -> Iterator[None]:
    """What is registered inside is unknown afterwards."""
    before = [(each, dict(each)) for each in (ENCODINGS, KINDS, CORPORA)]
    loaded, modules = dict(plugins._loaded), dict(plugins._modules)
    try:
        yield
    finally:
        for catalogue, entries in before:
            catalogue.clear()
            catalogue.update(entries)
        for table, kept in ((plugins._loaded, loaded), (plugins._modules, modules)):
            table.clear()
            table.update(kept)
        plugins._entry_points.cache_clear()


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    """The file `name` with this text."""
    path = folder / name
    path.write_text(text)
    return path

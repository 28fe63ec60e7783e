"""A corpus as a command line names it: one of the catalogue, or the path of a text."""

import re
from pathlib import Path

from txlbench.config.catalogue import CORPORA, Level
from txlbench.config.corpus import CorpusConfig
from txlbench.config.loading import Document, validate
from txlbench.errors import UserError
from txlbench.registry import suggestion


def corpus_named(name: str, level: Level | None = None) -> CorpusConfig:
    """The `corpus` section that `name` stands for.

    Raises:
        UserError: if `name` is neither a corpus nor a file.
    """
    content: dict[str, str | None] = {"name": name, "level": level}
    if name not in CORPORA:
        if not Path(name).exists():
            raise UserError(f"{name}: neither a corpus nor a file", suggestion(name, CORPORA))
        content |= {"name": _name_of(Path(name)), "path": name}
    return validate(CorpusConfig, content, Document(name, content))


def _name_of(path: Path) -> str:
    """A corpus name for a text: its file's name, without what a corpus name may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "text"
    return f"{name}-text" if name in CORPORA else name

"""`enwiki-sample`: 6 MB of real Wikipedia XML, the kind of text of enwik8, without a download.

The text is a test file of the gensim package. It is found without importing the package, and
split 90/5/5 by bytes.
"""

import bz2
import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.source import Source
from txlbench.data.splits import cut
from txlbench.data.text import CHUNK, Text
from txlbench.errors import UserError

SHA256 = "34c1c63050c87cc8477b9ae36b1cb0edf372612c92938b742e579a7109c20fa4"
"""Of the 6,089,746 decompressed bytes."""

FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
REMEDY = "pip install 'txlbench[sample]'"


class EnwikiSample(Source):
    """The sample from gensim's test data, or from a copy of it, compressed or not."""

    name = "enwiki-sample"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule

    def __init__(self, from_file: Path | None = None) -> None:
        self.from_file = from_file

    def checksum(self) -> str:
        return SHA256

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        return cut(self.xml(scratch), self.level)

    def xml(self, scratch: Path) -> Path:
        """The decompressed sample, unpacked to `scratch` and checked."""
        path = self.from_file or _packaged()
        text = scratch / "enwiki-sample.xml"
        found = _unpack(path, text)
        if found != SHA256:
            remedy = "give another copy" if self.from_file else REMEDY
            raise UserError(f"{path}: SHA-256 of the text is {found}, not {SHA256}", remedy)
        return text


def _packaged() -> Path:
    """The file inside the installed gensim package."""
    package = find_spec("gensim")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder, "test", "test_data", FILE)
        if path.is_file():
            return path
    missing = "the gensim package is missing" if package is None else f"gensim lacks {FILE}"
    raise UserError(f"enwiki-sample: {missing}", REMEDY)


def _unpack(path: Path, text: Path) -> str:
    """Writes the text of `path`, decompressed if need be, to `text`; returns its SHA-256."""
    if not path.is_file():
        raise UserError(f"{path}: no such file", f"give {FILE} or its decompressed text")
    digest = hashlib.sha256()
    try:
        with _opened(path) as source, text.open("wb") as target:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
    except (EOFError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # Not bz2's, but the file system's.
            raise
        raise UserError(f"{path}: the compressed file is damaged", "copy it again") from error
    return digest.hexdigest()


def _opened(path: Path) -> BinaryIO | bz2.BZ2File:
    with path.open("rb") as file:
        compressed = file.read(3) == b"BZh"
    return bz2.open(path) if compressed else path.open("rb")

"""Getting a prepared corpus: the one that lies on disk, else built now.

A prepared directory is named for the checksum of its source and never changes, so an edited text
gets a new one, and runs that still read the old one are not disturbed.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from txlbench.config.catalogue import CORPUS_LOADERS
from txlbench.config.corpus import CorpusConfig
from txlbench.config.identity import fingerprint
from txlbench.data.building import build
from txlbench.data.corpus import SCHEMA, Corpus, open_corpus
from txlbench.data.own_text import OwnText
from txlbench.data.source import Source
from txlbench.data.storage import create_directory, data_root
from txlbench.errors import UserError


def prepare(config: CorpusConfig, from_file: Path | None = None) -> Corpus:
    """The corpus of `config`, built under `$TXLBENCH_DATA` or the user's cache if need be.

    Args:
        from_file: what the user has instead of the file that a catalogue's corpus would fetch.

    Raises:
        UserError: if the text is missing, damaged, too short or not UTF-8 where it must be, or
            the place for prepared corpora cannot be written.
    """
    source = _source(config, from_file)
    with _faults_as_user_errors():
        checksum = source.checksum()
        directory = _directory(source, checksum)
        if not directory.is_dir():
            create_directory(directory, partial(build, source, checksum))
    return open_corpus(directory, config.name)


def find_prepared(config: CorpusConfig) -> Corpus | None:
    """The corpus of `config` if it is prepared already; builds and fetches nothing."""
    source = _source(config, None)
    with _faults_as_user_errors():
        directory = _directory(source, source.checksum())
    return open_corpus(directory, config.name) if directory.is_dir() else None


def _source(config: CorpusConfig, from_file: Path | None) -> Source:
    if config.path is not None:
        if from_file is not None:
            raise UserError(
                f"--from-file {from_file}: '{config.name}' is a text already",
                "drop --from-file, which stands in for what a named corpus fetches",
            )
        return OwnText(config)
    if config.name not in CORPUS_LOADERS:
        known = ", ".join(CORPUS_LOADERS.names())
        raise UserError(
            f"corpus '{config.name}' cannot be prepared by name",
            f"give the path of its text, or one of: {known}",
        )
    source = CORPUS_LOADERS.load(config.name)(from_file)
    assert isinstance(source, Source)
    return source


def _directory(source: Source, checksum: str) -> Path:
    made_from = [SCHEMA, source.level, source.split_rule, checksum]
    return data_root() / f"{source.name}-{source.level}-{fingerprint(made_from, length=16)}"


@contextmanager
def _faults_as_user_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "check the path and its permissions"
        if error.errno == errno.ENOSPC:
            remedy = "free some space, or set TXLBENCH_DATA to a place that has it"
        place = error.filename or data_root()
        raise UserError(f"{place}: {error.strerror or error}", remedy) from error

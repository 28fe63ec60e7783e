"""Every test of the data package has a data directory of its own."""

import dataclasses
import hashlib
import io
import tarfile
import zipfile

import pytest

from txlbench.config.catalogue import CORPORA, load_class
from txlbench.config.run_config import CorpusConfig
from txlbench.data.prepare import prepare


@pytest.fixture(autouse=True)
def data_directory(tmp_path, monkeypatch):
    path = tmp_path / "data"
    monkeypatch.setenv("TXLBENCH_DATA", str(path))
    return path


@pytest.fixture
def archive(tmp_path):
    """Writes a zip or tar.gz archive with the given members."""

    def archive(name, members):
        path = tmp_path / name
        if name.endswith(".zip"):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                for member, content in members.items():
                    file.writestr(member, content)
            return path
        with tarfile.open(path, "w:gz") as file:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
        return path

    return archive


@pytest.fixture
def published(monkeypatch):
    """Makes a miniature of a corpus the published one: its archive, and counts if given."""

    def published(name, path=None, **counts):
        source = load_class(CORPORA[name].target)
        unknown = {"vocabulary_size": None, "train_tokens": None}
        unknown |= {"valid_tokens": None, "test_tokens": None}
        facts = dataclasses.replace(CORPORA[name], **unknown | counts)
        monkeypatch.setitem(CORPORA, name, facts)
        if path is not None:
            checksum = hashlib.sha256(path.read_bytes()).hexdigest()
            changed = dataclasses.replace(source.archive, sha256=checksum)
            monkeypatch.setattr(source, "archive", changed)
        return source

    return published


@pytest.fixture
def prepared():
    """Prepares a corpus of the catalogue from a file."""
    return lambda name, path: prepare(CorpusConfig(name=name), from_file=path)


@pytest.fixture
def texts():
    """The decoded splits of a corpus."""

    def texts(corpus):
        return [corpus.vocabulary.decode(corpus.ids(split)) for split in ("train", "valid", "test")]

    return texts

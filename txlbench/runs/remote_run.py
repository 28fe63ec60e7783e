"""A run on a node of a cluster: in its own directory, or in a scratch folder.

A node proves that it sees the run's directory by a token that the driver left there. Where it does
not, or lacks the text, it asks for the files, works in a scratch folder, and brings every change
back; the driver holds the claim of the run meanwhile. Files are read and written in such an order
that whatever part of them has arrived can be gone on from: a checkpoint never arrives before the
log lines that it counts on.

Node and driver talk through an `Exchange`: the node says what is new and is told what to do.
"""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import txlbench
from txlbench.config.run_config import CorpusConfig
from txlbench.data.download import own_checksum, text_files
from txlbench.errors import UserError
from txlbench.machine import worker_environment
from txlbench.records.claim import check_claim
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.job import SAVING, Job
from txlbench.runs.worker_process import GRACE_SECONDS, WorkerProcess

TOKEN = ".driver"
TEXTS = "texts"
"""Folder beside the run, in the scratch folder, for texts that were sent along."""
ASK_SECONDS = 0.5
BRING_SECONDS = 5.0
CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Assignment:
    """What a node is told of a run.

    Attributes:
        job: its directory is absolute.
        token: what `TOKEN` in the run's directory contains.
        folder: the driver's working directory, to which paths of texts are relative.
        corpus: of the run.
        text: checksum of the user's text; None for a corpus of the catalogue.
        threads: CPU threads of the run.
    """

    job: Job
    token: str
    folder: Path
    corpus: CorpusConfig
    text: str | None
    threads: int
    version: str = txlbench.__version__


@dataclass(frozen=True)
class Part:
    """A piece of a file.

    Attributes:
        name: path of the file below its folder.
        start: byte at which the piece begins; a log is cut there first.
        data: the bytes, or what they were stored as; None for a file that is gone.
        is_last: the file is whole with this piece, and replaces an earlier one.
    """

    name: str
    start: int
    data: Any
    is_last: bool = True


LOGS = {".jsonl", ".txt"}
"""Files that only grow, but for what training takes back when it goes on from a checkpoint."""


@dataclass(frozen=True)
class NodeReport:
    """What a node says.

    Attributes:
        asks: it needs the run's files; with `text` also the text.
        parts: what has changed since it last said so.
    """

    host: str = field(default_factory=socket.gethostname)
    asks: bool = False
    text: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Orders:
    """What a node is told.

    Attributes:
        saves: how many checkpoints were asked for since the ablation began.
        files: the run's files and texts, for a node that asked; None until they are ready.
    """

    stop: bool = False
    saves: int = 0
    files: tuple[Part, ...] | None = None


@dataclass(frozen=True)
class Exchange:
    """How a node talks with its driver, and stores bytes for it.

    Attributes:
        say: returns what is to be done; raises if the driver is out of reach.
    """

    say: Callable[[NodeReport], Orders]
    put: Callable[[bytes], Any]
    get: Callable[[Any], bytes]


def carry_out(task: Assignment, exchange: Exchange) -> RunState:
    """Trains and measures the run on this node; returns the state it leaves the run in.

    Raises:
        UserError: if this node has another version of the package.
    """
    if task.version != txlbench.__version__:
        raise UserError(
            f"{socket.gethostname()} has txlbench {txlbench.__version__}, the driver "
            f"{task.version}",
            "install the same version on every node",
        )
    sees_run, sees_text = _content(task.job.directory / TOKEN) == task.token, _sees_text(task)
    orders = exchange.say(NodeReport(asks=not (sees_run and sees_text), text=not sees_text))
    if orders.stop:
        return RunState.INTERRUPTED
    if sees_run and sees_text:
        return _work(task, task.job, orders.saves, exchange, None)
    with tempfile.TemporaryDirectory(prefix="txlbench-") as scratch:
        folder = Path(scratch)
        while orders.files is None:
            time.sleep(ASK_SECONDS)
            orders = exchange.say(NodeReport(asks=True, text=not sees_text))
            if orders.stop:
                return RunState.INTERRUPTED
        for part in orders.files:
            receive(folder, part, exchange.get)
        run = RunDirectory(folder / task.job.directory.name)
        if not sees_text:
            _use_sent_texts(run, folder / TEXTS)
        outbox = Outbox(run.path, exchange.put)
        job = replace(task.job, directory=run.path, attempts=None)
        state = _work(task, job, orders.saves, exchange, outbox)
        exchange.say(NodeReport(parts=outbox.changes()))
        return state


def _work(
    task: Assignment, job: Job, saves: int, exchange: Exchange, outbox: "Outbox | None"
) -> RunState:
    """Lets a worker process do the job, as told; however this ends, it ends with a checkpoint."""
    folder = task.folder if task.folder.is_dir() else job.directory
    worker = WorkerProcess(job, _environment(task.threads), folder)
    worker.begin()
    told, next_look = False, time.monotonic() + BRING_SECONDS
    try:
        while not worker.is_over:
            parts: tuple[Part, ...] = ()
            if outbox is not None and time.monotonic() > next_look:
                parts = outbox.changes()
                next_look = time.monotonic() + BRING_SECONDS
            orders = exchange.say(NodeReport(parts=parts))
            if orders.stop:
                told = True
                break
            if orders.saves > saves:
                saves = orders.saves
                worker.send(SAVING)
            time.sleep(ASK_SECONDS)
    finally:
        worker.send(signal.SIGTERM)
        worker.wait(GRACE_SECONDS)
    return worker.outcome(asked_to_stop=told)


def _environment(threads: int) -> Mapping[str, str]:
    """That of this process, in which the same package is found."""
    here = str(Path(txlbench.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return worker_environment(threads, {**os.environ, "PYTHONPATH": paths})


def _content(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _sees_text(task: Assignment) -> bool:
    """Whether the text of the run, if it has one of its own, is here with the same bytes."""
    if task.text is None:
        return True
    paths = {
        name: str(task.folder / Path(path).expanduser())
        for name, path in _paths(task.corpus).items()
    }
    try:
        return own_checksum(task.corpus.model_copy(update=paths)) == task.text
    except (UserError, OSError):
        return False


def _paths(corpus: CorpusConfig) -> dict[str, str]:
    """The texts of the user by split."""
    given = {"path": corpus.path, "valid": corpus.valid, "test": corpus.test}
    return {name: path for name, path in given.items() if path is not None}


def _use_sent_texts(run: RunDirectory, texts: Path) -> None:
    config = run.read_config()
    paths = {}
    for name, path in _paths(config.corpus).items():
        file = texts / name / Path(path).name
        paths[name] = str(file if file.is_file() else file.parent)
    corpus = config.corpus.model_copy(update=paths)
    changed = config.model_copy(update={"corpus": corpus})
    run.write_config(changed, run.read_paper(), run.read_label() or run.id)


def _names(run: Path) -> list[str]:
    """Names of the files that are sent, in the order in which they are read.

    What tells that something is complete comes first, checkpoints before the logs they count on.
    The previous checkpoint is the last one of before, losses by context are made by other verbs.
    """
    names = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
    return sorted((name for name in names if _is_sent(name)), key=_rank)


def _is_sent(name: str) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    kept = ("mlflow.json", "checkpoints/previous.pt")
    return not (hidden or name in kept or name.startswith("losses/"))


def _rank(name: str) -> tuple[int, str]:
    if name in ("status.json", "summary.json"):
        return 0, name
    if _is_log(name):
        return 3, name
    return 2 if name.startswith("checkpoints") else 1, name


def _is_log(name: str) -> bool:
    return "/" not in name and Path(name).suffix in LOGS


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class Outbox:
    """The changes of a run's files since they were last asked for.

    Args:
        put: stores bytes for the driver.
    """

    def __init__(self, run: Path, put: Callable[[bytes], Any]) -> None:
        self._run, self._put = run, put
        self._stamps = {name: _stamp(run / name) for name in _names(run)}
        self._logs = {name: (run / name).read_bytes() for name in self._stamps if _is_log(name)}

    def changes(self) -> tuple[Part, ...]:
        """Pieces in the order in which they are to be written.

        Files are read in the opposite order, so that logs reach at least as far as checkpoints.
        """
        found: list[list[Part]] = []
        names = _names(self._run)
        for name in names:
            stamp = _stamp(self._run / name)
            if stamp is not None and stamp != self._stamps.get(name):
                self._stamps[name] = stamp
                found.append(self._log_part(name) if _is_log(name) else self._pieces(name))
        for name in [name for name in self._stamps if name not in names and "/" not in name]:
            del self._stamps[name]
            found.append([Part(name, 0, None)])
        return tuple(part for parts in reversed(found) for part in parts)

    def _log_part(self, name: str) -> list[Part]:
        """What was added, or the whole log if anything else happened to it."""
        content, before = (self._run / name).read_bytes(), self._logs.get(name, b"")
        start = len(before) if content.startswith(before) else 0
        self._logs[name] = content
        return [Part(name, start, self._put(content[start:]))]

    def _pieces(self, name: str) -> list[Part]:
        return list(pieces(self._run / name, name, self._put))


def pieces(path: Path, name: str, put: Callable[[bytes], Any]) -> Iterator[Part]:
    """The file at `path`, a chunk at a time; nothing if it is gone."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        start, data = 0, file.read(CHUNK_BYTES)
        while True:
            following = file.read(CHUNK_BYTES)
            yield Part(name, start, put(data), is_last=not following)
            if not following:
                return
            start, data = start + len(data), following


def files_of(run: RunDirectory, text: bool, put: Callable[[bytes], Any]) -> tuple[Part, ...]:
    """What a node needs to go on with `run`: its files, and with `text` its texts."""
    found = [
        part
        for name in _names(run.path)
        for part in pieces(run.path / name, f"{run.id}/{name}", put)
    ]
    if text:
        for name, path in _paths(run.read_config().corpus).items():
            for file in text_files(Path(path).expanduser()):
                found += pieces(file, f"{TEXTS}/{name}/{file.name}", put)
    return tuple(found)


def receive(folder: Path, part: Part, get: Callable[[Any], bytes]) -> None:
    """Writes a piece to its file below `folder`; a file that is no log is whole or not there."""
    path = folder / part.name
    if part.data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    data = get(part.data)
    if _is_log(part.name):
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(part.start)
            file.seek(part.start)
            file.write(data)
        return
    aside = path.with_name(f".{path.name}.arriving")
    with aside.open("ab" if part.start else "wb") as file:
        file.write(data)
    if part.is_last:
        aside.replace(path)


def receive_all(run: Path, parts: Iterable[Part], get: Callable[[Any], bytes]) -> None:
    """Writes what a node has brought back to the run, which this process has claimed."""
    for part in parts:
        check_claim(run)
        receive(run, part, get)

"""Claims of run directories: one process works on a run, on whichever machine shares the disk.

Processes of one machine are kept apart by a lock on `.claim`, which the system drops with its
process. Such locks need not reach other machines (NFS, Lustre), so that whoever has the lock also
takes a lease: it creates the file `.claim.N` exclusively, numbered one higher than the last lease
of the run. A lease holds while its time of modification is recent by the clock of the file system;
the holder touches it, and sets it back to zero in the end. One that has been silent for
`SILENCE_SECONDS` may be followed by the next number, which one process alone can create. A holder
that was suspended that long finds a higher number than its own, and writes nothing any more.

A launcher that starts a job again in place of one whose machine died names both by one `OWNER`; the
second need not wait for the silence of the first.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

SILENCE_SECONDS = 900.0
"""A lease of another machine that was not touched for so long has no holder any more."""
HEARTBEAT_SECONDS = 30.0
PATIENCE_SECONDS = 1.0
"""Whoever only looks, or writes a run's configuration, holds its lock for a moment."""
RETRY_SECONDS = 0.02
OWNER = "TXLBENCH_OWNER"
"""The variable that names the launcher's job which a process belongs to, in all its lives."""
KEPT_LEASES = 4
"""Earlier leases stay a while: to create one anew would not tell that it is out of date."""
WITHOUT_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}
"""How file systems refuse to lock at all."""


class ClaimLost(Exception):
    """Another process took a run over while this one was suspended or cut off from the disk."""


@contextlib.contextmanager
def claimed(run: Path, patience: float = PATIENCE_SECONDS) -> Iterator["Claim | None"]:
    """Holds the run in directory `run` inside; yields None, and holds nothing, if another process
    has it for longer than `patience` (seconds)."""
    with _lock_file(run).open("a") as file:
        begin = time.monotonic()
        while (claim := _try(run, file)) is None and (
            waited := time.monotonic() - begin
        ) < patience:
            time.sleep(min(1.0, RETRY_SECONDS + waited / 20))
        if claim is None:
            yield None
            return
        _held[run.absolute()] = claim
        try:
            yield claim
        finally:
            del _held[run.absolute()]
            claim.release()


@contextlib.contextmanager
def claimed_by_parent(run: Path) -> Iterator[None]:
    """Writes to `run` inside as under the claim that this process's parent holds.

    Raises:
        ClaimLost: if the parent holds it no more.
    """
    lease = _latest(run)
    if lease is None or lease.content().get("pid") != os.getppid():
        raise ClaimLost(f"{run}: another process took the run over")
    file = os.open(lease.path, os.O_RDWR)
    _held[run.absolute()] = Claim(lease.path, file)
    try:
        yield
    finally:
        del _held[run.absolute()]
        os.close(file)


def is_claimed(run: Path) -> bool:
    """Whether some process, here or on another machine, holds the run in directory `run`."""
    try:
        with _lock_file(run).open("rb") as file:
            lock = _lock(file, fcntl.LOCK_SH)
    except OSError:  # no process ever worked on it
        return False
    if lock is False:
        return True
    lease = _latest(run)
    return lease is not None and lease.is_in_force(with_locks=lock is True)


@dataclass(frozen=True)
class Holder:
    """Who holds a run, or held it last; empty where nobody did.

    Attributes:
        host: name of the machine.
        owner: the launcher's job, as in `OWNER`.
    """

    host: str = ""
    owner: str = ""


def holder(run: Path) -> Holder:
    """Who holds the run in directory `run`, or held it last."""
    lease = _latest(run)
    content = lease.content() if lease else {}
    return Holder(str(content.get("host", "")), str(content.get("owner", "")))


def check_claim(run: Path) -> None:
    """Raises ClaimLost if this process has claimed `run` and another one took it over since.

    To be called before every write to the run.
    """
    claim = _held.get(run.absolute())
    if claim is not None and claim.is_lost():
        raise ClaimLost(f"{run}: another process took the run over while this one was suspended")


_held: dict[Path, "Claim"] = {}
"""The claims of this process, by absolute path of the run."""


class Claim:
    """A lease that this process holds.

    Attributes:
        path: of the lease.
    """

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._next = path.with_suffix(f".{_number(path.name) + 1}")
        self._file = file

    def is_lost(self) -> bool:
        """Whether another process has taken over.

        The lease is touched before it is looked for a later one, whose creator in turn looks at
        this one again afterwards: one of the two sees the other, whatever the order.
        """
        with contextlib.suppress(OSError):
            os.utime(self._file)  # without times: by the file system's own clock
        return self._next.exists() or not self.path.exists()

    @contextlib.contextmanager
    def kept(
        self, lost: Callable[[], object] = lambda: None, interval: float | None = None
    ) -> Iterator[None]:
        """Touches the lease from time to time inside, whatever the process is busy with.

        Args:
            lost: called once if another process has taken over.
            interval: in seconds; None for HEARTBEAT_SECONDS.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT_SECONDS if interval is None else interval):
                if self.is_lost():
                    lost()
                    return

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def release(self) -> None:
        """Lets anybody follow at once."""
        with contextlib.suppress(OSError):
            os.utime(self._file, (0, 0))
        os.close(self._file)


@dataclass(frozen=True)
class _Lease:
    """The latest lease of a run, as found; it may be released or silent."""

    path: Path
    touched: float

    def is_in_force(self, with_locks: bool) -> bool:
        """Whether its holder may still be at work.

        Args:
            with_locks: whether the lock is free, rather than unknown to the file system.
        """
        if self.touched <= 0:
            return False
        content = self.content()
        if content.get("owner") and content["owner"] == _self()["owner"]:
            return False
        if content.get("machine") == _machine():
            return not with_locks and _is_alive(content.get("pid"))
        return _clock(self.path.parent) - self.touched < SILENCE_SECONDS

    def content(self) -> dict[str, Any]:
        """What the holder wrote of itself; empty where it could not, or has not yet."""
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _try(run: Path, file: IO[str]) -> Claim | None:
    lock = _lock(file, fcntl.LOCK_EX)
    if lock is False:
        return None
    try:
        claim = _follow(run, _latest(run), with_locks=lock is True)
    except BaseException:
        _unlock(file)
        raise
    if claim is None:
        _unlock(file)
    return claim


def _follow(run: Path, before: _Lease | None, with_locks: bool) -> Claim | None:
    """Takes the lease after `before`; None if that is in force, or another process was faster."""
    if before is not None and before.is_in_force(with_locks):
        return None
    number = _number(before.path.name) + 1 if before else 1
    path = run / f".claim.{number}"
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    except FileExistsError:
        return None
    with contextlib.suppress(OSError):  # a full disk takes the file, though not who holds it
        os.write(file, json.dumps(_self()).encode())
    latest = _latest(run)
    if (before and _time_of(before.path) != before.touched) or not latest or latest.path != path:
        path.unlink(missing_ok=True)  # the holder woke up, or our view of the directory was old
        os.close(file)
        return None
    for old in _leases(run):
        if _number(old.name) <= number - KEPT_LEASES:
            old.unlink(missing_ok=True)
    return Claim(path, file)


def _self() -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "owner": os.environ.get(OWNER, ""),
        "time": time.time(),
    }


@cache
def _machine() -> str:
    """Name of this machine until it is started again, other than that of its twins."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}".strip()


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True


def _latest(run: Path) -> _Lease | None:
    paths = sorted(_leases(run), key=lambda path: _number(path.name), reverse=True)
    for path in paths:
        if (touched := _time_of(path)) is not None:
            return _Lease(path, touched)
    return None


def _leases(run: Path) -> list[Path]:
    return [path for path in run.glob(".claim.*") if path.name.removeprefix(".claim.").isdecimal()]


def _number(name: str) -> int:
    return int(name.removeprefix(".claim."))


def _time_of(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _lock_file(run: Path) -> Path:
    return run / ".claim"


def _lock(file: IO[str] | IO[bytes], kind: int) -> bool | None:
    """Whether the lock could be had; None where the file system knows none."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return None
        raise
    return True


def _unlock(file: IO[str]) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


def _clock(folder: Path) -> float:
    """The time of the file system of `folder`, in seconds since the epoch; ours if read-only."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()

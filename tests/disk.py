"""Disks that refuse, for real: no space is left by the system's own limits and file systems."""

import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def files_end_at(size):
    """Inside, no file of this process grows beyond `size` bytes: writes are short, then refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
PRIVATE = ["unshare", "--mount"]
UNPRIVILEGED = ["unshare", "--user", "--map-root-user", "--mount"]


def on_small_disk(folder, size, code, *arguments, env):
    """Runs Python with `code` in a process that has a file system of `size` at `folder`.

    Where neither root nor a namespace of one's own may mount, it runs on the ordinary disk and is
    told "limit" as its first argument, else "tmpfs": it has to limit its files itself.
    """
    folder.mkdir(exist_ok=True)
    command = [sys.executable, *code]
    for enter in (PRIVATE, UNPRIVILEGED):
        start = [*enter, "sh", "-c", MOUNT, "sh", size, str(folder)]
        if shutil.which(enter[0]) and _works([*start, "true"]):
            return _run([*start, *command, "tmpfs", *arguments], env)
    return _run([*command, "limit", *arguments], env)


def _works(command):
    return subprocess.run(command, capture_output=True).returncode == 0


def _run(command, env):
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400)

"""What the user asked for, as the command line hands it on."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """What the user asked `ablate` for.

    Attributes:
        spec: the experiment file.
        out: the experiment's directory; default results/<name>.
        overrides: `key=value` settings over the base configuration.
        only: patterns of labels or run ids; none for all.
        jobs: runs at once; None for as many as fit the device.
        threads: CPU threads of each run; None for its share of the cores.
        keep_going: go on although the first two runs failed alike.
        retry: run failed and diverged runs again.
        command: what was typed, for tables and figures.
    """

    spec: Path
    out: Path | None = None
    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    jobs: int | None = None
    device: str = "auto"
    threads: int | None = None
    keep_going: bool = False
    retry: bool = False
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))

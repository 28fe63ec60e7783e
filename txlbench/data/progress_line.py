"""How far a download is: one line, drawn over and over on a terminal and written once elsewhere."""

import sys
import time

INTERVAL = 0.2
"""Seconds between two drawings."""

MEGABYTE = 1_000_000


class ProgressLine:
    """The progress bar that pooch fills; nothing is shown before the first bytes arrive.

    Attributes:
        total: bytes of the whole file, 0 if the server does not say; set by pooch.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.total = 0
        self._done = 0
        self._drawn: float | None = None

    def update(self, size: int) -> None:
        """Counts `size` more bytes."""
        self._done += size
        now = time.monotonic()
        if self._drawn is None or (sys.stderr.isatty() and now - self._drawn > INTERVAL):
            self._draw()
            self._drawn = now

    def reset(self) -> None:
        """Counts from zero again, which pooch does before it fills the bar at the end."""
        self._done = 0

    def close(self) -> None:
        """Ends the line, if there is one."""
        if self._drawn is not None and sys.stderr.isatty():
            self._draw()
            sys.stderr.write("\n")
        self._drawn = None

    def _draw(self) -> None:
        if sys.stderr.isatty():
            share = f" of {self.total / MEGABYTE:,.1f}" if self.total else ""
            sys.stderr.write(f"\r{self.title}: {self._done / MEGABYTE:,.1f}{share} MB")
            sys.stderr.flush()
        else:
            print(self.title, file=sys.stderr)

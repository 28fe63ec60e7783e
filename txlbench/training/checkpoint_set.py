"""The checkpoints of one run: the newest two to continue from, and the best to measure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.errors import UserError
from txlbench.training.checkpoint import load, save_last
from txlbench.training.state import TrainingState


@dataclass(frozen=True)
class CheckpointSet:
    """Paths of a run's checkpoints, and the order in which they take each other's place."""

    directory: Path

    @property
    def last(self) -> Path:
        return self.directory / "last.pt"

    @property
    def previous(self) -> Path:
        """What was the last checkpoint before the last one."""
        return self.directory / "previous.pt"

    @property
    def best(self) -> Path:
        return self.directory / "best.pt"

    def save(
        self,
        state: TrainingState,
        metrics_bytes: int,
        timings_bytes: int,
        settings: Mapping[str, Any],
    ) -> None:
        """Writes the last checkpoint; the one it replaces is kept as the previous one.

        Raises:
            OSError: if it could not be written; then both are as they were.
        """

        def make_way(_: Path) -> None:
            if self.last.exists():
                self.last.replace(self.previous)

        save_last(
            self.last,
            state,
            metrics_bytes,
            timings_bytes=timings_bytes,
            settings=settings,
            approve=make_way,
        )

    def newest_first(self) -> Iterator[tuple[Path, dict[str, Any] | None]]:
        """The checkpoints to continue from; None for the content of one that is damaged.

        A missing last one counts as damaged where there is a previous one.
        """
        for path in (self.last, self.previous):
            if path.exists() or (path == self.last and self.previous.exists()):
                try:
                    content = load(path)
                except UserError:
                    yield path, None
                else:
                    yield path, content

    def remove_remains(self) -> None:
        """Deletes what a process left that was killed while it wrote."""
        for path in self.directory.glob(".*.pt.*"):
            path.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Renames a damaged file so that nothing takes it for a whole one, and returns its new name."""
    aside = path.with_name(f"{path.name}.damaged")
    if path.exists():
        path.replace(aside)
    return aside

"""The request of `probe`, and the watch over all that is read for it."""

from collections.abc import Callable
from dataclasses import dataclass

from txlbench.commands.recl_request import Progress, ReclRequest
from txlbench.errors import UserError
from txlbench.evaluation.context.far_context import Change

CONTEXTS = (16, 64, 256)
CHANGES = ("shuffle", "shuffle:8", "reverse", "other", "frequent", "rare")
LENGTHS = (8, 16, 32, 64, 128, 256)
TOKENS = 500
PROBES = ("far", "forgetting", "cache")


@dataclass(frozen=True)
class ProbeRequest(ReclRequest):
    """A call of `probe`: models and text as of `recl`.

    Attributes:
        contexts: ascending; the last is n, the others the k of perturbed context and caches.
        probes: of `PROBES`.
        changes: names of changes of the far context.
        lengths: of texts to recall.
        texts: texts of each length.
        kept_sinks: keys at the start of a window that a cache keeps.
        own_memory: texts are recalled with as many keys as a model's own memory, and its own.
    """

    probes: tuple[str, ...] = PROBES
    changes: tuple[str, ...] = CHANGES
    lengths: tuple[int, ...] = LENGTHS
    texts: int = 40
    kept_sinks: int = 4
    own_memory: bool = False

    @property
    def whole(self) -> int:
        """n, the whole context."""
        return (self.contexts or CONTEXTS)[-1]

    @property
    def nearest(self) -> tuple[int, ...]:
        """The k: tokens that stay, keys of a cache."""
        return (self.contexts or CONTEXTS)[:-1]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.changes:
            Change.parse(name)
        if unknown := [each for each in self.probes if each not in PROBES]:
            raise UserError(f"--probes: {unknown[0]!r} found", f"give some of {', '.join(PROBES)}")
        if self.contexts is not None and len(self.contexts) < 2:
            raise UserError(
                f"--contexts: {self.contexts[0]} alone", "give what is kept, then the whole context"
            )


@dataclass
class ProbeWatch:
    """Tells how many windows of all models are done."""

    progress: Progress
    total: int
    done: int = 0

    def of(self, reference: str) -> Callable[[int, int], None]:
        """Progress of the next pass of a model."""
        before = self.done

        def watch(done: int, _: int) -> None:
            self.done = before + done
            self.progress(reference, self.done, self.total)

        return watch

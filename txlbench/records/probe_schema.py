"""What probe.json holds: measures of context that need one more pass over changed inputs."""

from typing import Annotated

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from txlbench.records.context_schema import Interval, Missing
from txlbench.records.finding_schema import BlockCount, Finding, ReclSource
from txlbench.records.schema import Record


class FarChange(Record):
    """What a change of the far context costs.

    Attributes:
        cost: m_f(k) - m(n), nats.
        ablated: A(f, k), that cost as a share of what a cut at k costs; None where a cut costs
            nothing.
    """

    change: str
    cost: Interval
    ablated: Interval | None


class FarContext(Record):
    """What lies beyond the nearest `near` tokens; `worth` is m(k) - m(n), nats."""

    near: PositiveInt
    worth: Interval
    changes: tuple[FarChange, ...]


class Eviction(Record):
    """A cache of `keys` keys, which each query sees.

    Attributes:
        cost: loss with the newest keys less m(n), nats.
        saved: by keeping the first keys of the window instead of as many of the newest; None where
            that is not to be chosen.
    """

    keys: PositiveInt
    cost: Interval
    saved: Interval | None


class ForgettingPoint(Record):
    """Recall of texts of one length: greedy accuracy, and nats a token, of their second half.

    Attributes:
        texts: the number of texts.
        p: one-sided, of the paired t-test that accuracy is higher after the text itself.
    """

    length: PositiveInt
    texts: PositiveInt
    copy_accuracy: Interval
    other_accuracy: Interval
    accuracy_gain: Interval
    copy_loss: Interval
    other_loss: Interval
    loss_gain: Interval
    p: FiniteFloat


class ForgettingCurve(Record):
    """Recall by length.

    Attributes:
        fine: longest length with an accuracy of .99; 0 without any.
        coarse: longest length at which recall is above language modelling; 0 without any.
    """

    points: Annotated[tuple[ForgettingPoint, ...], Field(min_length=1)]
    fine: Interval
    coarse: NonNegativeInt

    @property
    def longest(self) -> int:
        return self.points[-1].length


class ProbeResult(Record):
    """All probes of one model.

    Attributes:
        context: n, the predecessors of every token; fewer than asked for where the model can use
            no more.
    """

    model: str
    context: PositiveInt
    tokens: int = 0
    blocks: BlockCount | None = None
    full: Interval | None = None
    far: tuple[FarContext, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    forgetting: ForgettingCurve | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was measured."""
        return self.full is None and self.forgetting is None


class ProbeRecord(Finding):
    """probe.json.

    Attributes:
        contexts: the k, and n at the end.
        sinks: keys at the start of a window that a cache keeps.
        seed: of shuffles and resamples.
    """

    SCHEMA = "txlbench.probe/1"

    contexts: Annotated[tuple[PositiveInt, ...], Field(min_length=2)]
    changes: tuple[str, ...]
    lengths: tuple[PositiveInt, ...]
    sinks: PositiveInt
    seed: int
    models: dict[str, ReclSource]
    results: Annotated[tuple[ProbeResult, ...], Field(min_length=1)]

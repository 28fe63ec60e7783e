"""What attention.json holds: where the heads of a model attend, and what their scores consist of.

Distances are in tokens: 0 is the token that a query reads itself. Entropies are in nats, scores
as they enter the softmax.
"""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from txlbench.records.context_schema import Interval
from txlbench.records.finding_schema import Finding, ReclSource
from txlbench.records.schema import Record

Letter = Annotated[str, Field(pattern="^[a-f]$")]
"""Terms of the scores; see `Encoding.score_terms`."""


class HeadAttention(Record):
    """Attention of one head, on average over all queries.

    Attributes:
        layer, head: both from 1.
        distance: mean distance of what it attends to.
        entropy: of its attention.
        first: attention on the first key of the window, or the sinks; None where memory has none.
        profile: attention at each distance from 0.
    """

    layer: PositiveInt
    head: PositiveInt
    distance: Interval
    entropy: Interval
    first: FiniteFloat | None = None
    profile: tuple[FiniteFloat, ...]

    @property
    def name(self) -> str:
        """LAYER.HEAD."""
        return f"{self.layer}.{self.head}"


class TermAttention(Record):
    """One term of the scores of one head.

    Attributes:
        scale: standard deviation of a query's scores over its keys, the root of mean squares.
        spread: standard deviation over queries of the scores at one distance, likewise; 0 where
            distance alone decides.
        profile: the mean at each distance of the softmax of this term alone.
    """

    layer: PositiveInt
    head: PositiveInt
    term: Letter
    scale: FiniteFloat
    spread: FiniteFloat
    profile: tuple[FiniteFloat, ...]


class HeadRows(Record):
    """Attention of one head to the keys of consecutive targets.

    Attributes:
        rows: a line for each target: its attention at each distance from 0.
    """

    layer: PositiveInt
    head: PositiveInt
    rows: tuple[tuple[FiniteFloat, ...], ...]


class ShownTargets(Record):
    """Consecutive targets whose attention is shown as it is.

    Attributes:
        first: place in the split of the first token in `tokens`.
        tokens: what the context and the targets read as, in the order of the text; the last of
            them is the last target, the one before it the token that its query reads.
        count: how many of them are targets, at the end.
        heads: whose attention is shown.
    """

    first: int
    tokens: tuple[str, ...]
    count: PositiveInt
    is_text: bool
    heads: tuple[HeadRows, ...]


class AttentionRecord(Finding):
    """attention.json.

    Attributes:
        models: the model by its title.
        memory: its kind, of models of this package.
        keys: the fewest and the most tokens that queries see, themselves included.
        adds_bos: the model puts a token of its own before each window.
        apart: first keys that mean distances and profiles leave out: sinks that a memory keeps, or
            the first key of a window, on which attention rests that is needed nowhere.
        regime: streaming with memory, or windows.
        queries: tokens whose attention is counted.
        row_error: the most by which attention did not sum to one.
        leak: the most attention to what a query may not see.
        silent_layers: layers that gave no attention.
    """

    SCHEMA = "txlbench.attention/1"

    models: Annotated[dict[str, ReclSource], Field(min_length=1, max_length=1)]
    memory: str | None = None
    keys: tuple[PositiveInt, PositiveInt]
    adds_bos: bool = False
    apart: NonNegativeInt = 0
    regime: Literal["streaming", "windows"]
    queries: PositiveInt
    clamp_len: int | None
    dtype: str
    row_error: FiniteFloat
    leak: FiniteFloat
    silent_layers: tuple[int, ...] = ()
    heads: Annotated[tuple[HeadAttention, ...], Field(min_length=1)]
    terms: tuple[TermAttention, ...]
    shown: ShownTargets | None

    @property
    def title(self) -> str:
        """What the model is called."""
        return next(iter(self.models))

    @property
    def layers(self) -> dict[int, list[HeadAttention]]:
        """The heads of each layer."""
        found: dict[int, list[HeadAttention]] = {}
        for head in self.heads:
            found.setdefault(head.layer, []).append(head)
        return found

    @property
    def letters(self) -> tuple[Letter, ...]:
        """The terms that there are, in order."""
        return tuple(dict.fromkeys(each.term for each in self.terms))

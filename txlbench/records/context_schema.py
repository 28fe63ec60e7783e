"""What context.json holds: every measure of context that follows from context losses.

One frozen model a measure. Losses are in nats; an interval covers the sampling of tokens only. A
measure that the losses do not allow is listed as missing, with the reason, and nothing else fails.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from txlbench.records.finding_schema import BlockCount, Finding, ReclRecord, ReclSource
from txlbench.records.schema import Record


class Interval(Record):
    """A value and its 95 % interval; without one where there are too few tokens for blocks."""

    value: FiniteFloat
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the interval leaves out 0: only then the value has a sign."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Missing(Record):
    """A measure that is not available, and why.

    Attributes:
        models: those that lack it; all of the group if empty.
    """

    measure: str
    reason: str
    models: tuple[str, ...] = ()


class Harm(Record):
    """What a longer context costs and gains token by token.

    Attributes:
        harmed, helped: shares of tokens whose loss rises, or falls, by more than `delta` nats.
        cost, gain: nats a token, over all tokens, that rising and falling losses come to.
    """

    shorter: int
    longer: int
    delta: FiniteFloat
    harmed: Interval
    helped: Interval
    cost: Interval
    gain: Interval


class ContextCurve(Record):
    """Mean loss m(c) of one model at each context.

    Attributes:
        above_best: m(c) less that of the model which is best at the longest context.
        gain: m(c) at the first context less that at the last.
        best_context: where m(c) is least.
        excess: m(c) at the last context less that at the best one.
        ecl: effective context length (Khandelwal et al. 2018).
        harm: of every step, then from the first context to the last.
    """

    model: str
    losses: tuple[Interval, ...]
    above_best: tuple[Interval, ...]
    gain: Interval
    best_context: int
    excess: Interval
    ecl: Interval
    harm: tuple[Harm, ...]


class PowerLaw(Record):
    """m(c) = (alpha / c)^beta + gamma, fitted to the curve of one model.

    Attributes:
        residuals: m(c) less the fit, nats.
        r_squared: share of the curve's variance that the fit explains.
        four_times: nats that a context four times the longest would still save.
    """

    model: str
    alpha: Interval
    beta: Interval
    gamma: Interval
    residuals: tuple[FiniteFloat, ...]
    r_squared: FiniteFloat
    four_times: Interval


class IclScore(Record):
    """Olsson et al. (2022): loss at context `longer` less that at `shorter`; negative is better."""

    model: str
    shorter: int
    longer: int
    score: Interval


class InformationStep(Record):
    """Usable information of a longer context: least loss of the group before, less that after.

    Attributes:
        best: the best model at either context.
    """

    shorter: int
    longer: int
    nats: Interval
    best: tuple[str, str]


class ClassCurve(Record):
    """Mean loss of one model on one class of tokens at each context.

    Attributes:
        gain: from the first context to the last, nats a token of the class.
        part: share of the model's whole gain that falls on the class; None where that is not
            above 0.
    """

    model: str
    losses: tuple[Interval, ...]
    gain: Interval
    ecl: Interval
    part: Interval | None


class TokenClass(Record):
    """A class of tokens, and how much context helps each model on it.

    Attributes:
        kind: what tokens are told apart by.
        name: which of them these are, as it follows the word "tokens".
        share: of the scored tokens.
    """

    kind: str
    name: str
    tokens: PositiveInt
    share: FiniteFloat
    curves: tuple[ClassCurve, ...]


class KeyTokens(Record):
    """LongPPL (Fang et al. 2025): perplexity over tokens that need the long context.

    Attributes:
        chosen_by: the model whose losses choose the tokens.
        share: of tokens that are key.
        by_chance: share of tokens that would be key with short and long context exchanged: what
            noise alone gives.
        net: share less by_chance.
        longppl: None without key tokens.
    """

    model: str
    chosen_by: str
    shorter: int
    longer: int
    tokens: NonNegativeInt
    share: Interval
    by_chance: Interval
    net: Interval
    longppl: Interval | None


class Exponent(Record):
    """I(L) at lengths L, nats, and the exponent b of I = A L^b.

    Attributes:
        exponent, factor: b and A; None where no power describes I(L).
        r_squared: of the straight line on log-log scales; None where some I(L) is not above 0.
        way: `model`: losses as they are; `corrected`: the first two terms mixed with the bigram
            entropy, as published.
    """

    model: str
    way: Literal["model", "corrected"]
    lengths: tuple[PositiveInt, ...]
    nats: tuple[Interval, ...]
    exponent: Interval | None
    factor: Interval | None
    r_squared: FiniteFloat | None


class MutualInformation(Record):
    """Bipartite mutual information (Chen et al. 2025) from dense contexts.

    Attributes:
        tokens: scored at every context.
        empty: where m(0), the loss without any context, comes from; None where it is left out.
        bigram_entropy: nats of two successive tokens; None where no text is known.
        counted: the tokens that entropy was counted on.
    """

    tokens: int
    blocks: BlockCount | None
    empty: str | None
    bigram_entropy: FiniteFloat | None
    counted: NonNegativeInt
    exponents: tuple[Exponent, ...]


class TokenView(Record):
    """Credit of stretches of context for the tokens of a span (context probing).

    Attributes:
        tokens: what each token of the span reads as; its position where no text is known.
        contexts: ends of the stretches, ascending: stretch s reaches from contexts[s] + 1 to
            contexts[s + 1] tokens back.
        losses: of each token at the longest context.
        credit: by model, a line for each token: nats that each stretch takes off its loss.
    """

    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    is_text: bool
    contexts: tuple[int, ...]
    losses: dict[str, tuple[FiniteFloat, ...]]
    credit: dict[str, tuple[tuple[FiniteFloat, ...], ...]]


class ContextGroup(Record):
    """All measures of one group of models on the same tokens.

    Attributes:
        name: a letter, empty where there is one group only; not in the file.
        best: the model with the lowest loss at the longest context.
    """

    models: tuple[str, ...]
    longest: tuple[int | None, ...]
    best: str
    tokens: int
    blocks: BlockCount | None
    curves: tuple[ContextCurve, ...]
    power_laws: tuple[PowerLaw, ...]
    icl_scores: tuple[IclScore, ...]
    information: tuple[InformationStep, ...]
    classes: tuple[TokenClass, ...]
    key_tokens: tuple[KeyTokens, ...]
    mutual_information: MutualInformation | None
    view: TokenView | None
    missing: tuple[Missing, ...]
    name: str = Field(default="", exclude=True)

    def curve(self, model: str) -> ContextCurve:
        return next(each for each in self.curves if each.model == model)

    def why_missing(self, measure: str, model: str) -> str | None:
        """The reason why a model has no such measure; None if it has."""
        for each in self.missing:
            if each.measure == measure and (not each.models or model in each.models):
                return each.reason
        return None


class ContextRecord(Finding):
    """context.json.

    Attributes:
        recl: what `recl` finds with the same losses; None where it refuses, with `recl_missing`.
        dense: L, where contexts of 1 to 2 L were asked for.
    """

    SCHEMA = "txlbench.context/1"

    threshold: FiniteFloat
    contexts: Annotated[tuple[int, ...], Field(min_length=1)]
    dense: PositiveInt | None
    seed: int
    unit: Literal["bpc", "bpb", "ppl"]
    models: dict[str, ReclSource]
    groups: Annotated[tuple[ContextGroup, ...], Field(min_length=1)]
    recl: ReclRecord | None
    recl_missing: str | None

    @property
    def counted_in(self) -> str:
        """What contexts are counted in."""
        return "bytes" if self.unit == "bpb" else "tokens"

    @property
    def targets(self) -> str:
        """What was scored: tokens, or units of text between boundaries that tokenizers share."""
        return "units of text" if self.unit == "bpb" else "tokens"

    def named_groups(self) -> Iterator[ContextGroup]:
        """The groups, with letters where there are several."""
        for index, group in enumerate(self.groups):
            letter = chr(ord("a") + index % 26) if len(self.groups) > 1 else ""
            yield group.model_copy(update={"name": letter})

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.recl.warnings if self.recl else ()

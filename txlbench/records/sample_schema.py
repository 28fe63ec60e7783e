"""What samples.json holds: texts that a model continued, beside how they really go on."""

from typing import Annotated

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from txlbench.records.finding_schema import Finding, Positive, ReclSource
from txlbench.records.schema import Record


class SampledText(Record):
    """One continuation of a context.

    Attributes:
        place: of the first token of the context in its split; None for a prompt of the user's.
        context, sample, reference: texts as they read, detokenised; the reference is what the
            context goes on with, empty where nobody knows.
        ids: the tokens that the model added.
        loss, reference_loss: mean nats a token of sample and reference, given what came before.
        agreeing: tokens of the sample that teacher forcing draws again.
    """

    place: NonNegativeInt | None
    context: str
    sample: str
    reference: str
    ids: tuple[int, ...]
    loss: FiniteFloat
    reference_loss: FiniteFloat | None
    agreeing: NonNegativeInt


class SamplesRecord(Finding):
    """samples.json.

    Attributes:
        models: the model by its title.
        context_tokens: tokens of each context drawn from the split; None for a prompt.
        tokens: those that were added.
        top_k: the likeliest tokens that were drawn from; None for all.
        seed: of the places, and with the number of the sample of its draws.
        mem_len: cached states; None where the newest tokens were read anew for each, and of models
            of transformers, which cache all.
        precision: number format of the model, or of the keys and values that it keeps, where that
            is not fp32.
        unit: bpc or ppl, in which losses are shown.
    """

    SCHEMA = "txlbench.samples/1"

    models: Annotated[dict[str, ReclSource], Field(min_length=1, max_length=1)]
    context_tokens: PositiveInt | None
    tokens: PositiveInt
    top_k: PositiveInt | None
    temperature: Positive
    seed: int
    mem_len: int | None
    precision: str | None = None
    unit: str
    samples: Annotated[tuple[SampledText, ...], Field(min_length=1)]

    @property
    def title(self) -> str:
        """What the model is called."""
        return next(iter(self.models))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where teacher forcing draws other tokens."""
        off = sum(len(each.ids) - each.agreeing for each in self.samples)
        if not off:
            return ()
        return (f"{off} tokens differ from those that teacher forcing draws (rounding?)",)

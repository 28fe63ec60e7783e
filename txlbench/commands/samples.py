"""`generate --samples`: continuations beside how the text goes on (the paper's Appendix E)."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.generate import (
    GenerateRequest,
    Writer,
    encoded_prompt,
    open_writer,
    read_prompt,
)
from txlbench.commands.model_ref import ModelRef
from txlbench.commands.names import short_titles
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.texts import ScoredText, read_text, source_of_pass
from txlbench.config.base import Part
from txlbench.config.catalogue import CORPORA
from txlbench.config.identity import fingerprint
from txlbench.data.text import detokenized
from txlbench.errors import UserError
from txlbench.machine import current_commit
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.sample_schema import SampledText, SamplesRecord


@dataclass(frozen=True)
class SamplesRequest(GenerateRequest):
    """A call of `generate` for a page.

    Attributes:
        samples: continuations; each of a context of its own, or all of the prompt.
        prompt_tokens: tokens of each context, which a split of a corpus is drawn from; None where
            a prompt is given.
        corpus, split: None for the model's own, and test.
        out: the directory of results; default results/samples-<hash>.
    """

    samples: int = 3
    prompt_tokens: int | None = None
    corpus: str | None = None
    split: Part | None = None
    out: Path | None = None
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))


UNHASHED = ("out", "command", "device")
ADDED: Mapping[str, object] = {"precision": "fp32"}
"""Options that came later; at these values they leave the names of directories as they were."""


@dataclass(frozen=True)
class _Context:
    """What is continued, and how the text goes on.

    Attributes:
        place: of its first token in the split; None for a prompt.
    """

    ids: NDArray[Any]
    reference: NDArray[Any]
    place: int | None


def run_samples(request: SamplesRequest) -> PublishedFinding:
    """Writes samples.json and a page that shows them."""
    if request.prompt_file is not None:
        request = replace(request, prompt=read_prompt(request), prompt_file=None)
    asked = {
        key: value
        for key, value in vars(request).items()
        if key not in UNHASHED and (key, value) not in ADDED.items()
    }
    directory = request.out or RESULTS / f"samples-{fingerprint(asked)}"
    return publish(directory / "samples.json", lambda: draw_samples(request))


def draw_samples(request: SamplesRequest) -> SamplesRecord:
    """Draws every sample, and again by teacher forcing. Writes nothing.

    Raises:
        UserError: if there is no such model, it does not fit the text, or the text is too short.
    """
    given = request.prompt is not None or request.prompt_file is not None
    if given == (request.prompt_tokens is not None):
        raise UserError(
            "--samples: continues a text",
            "give --prompt-tokens, or one of --prompt and --prompt-file",
        )
    prompt = read_prompt(request) if given else None
    ref, writer = open_writer(request)
    if prompt is None:
        text = read_text(ref, request.corpus, request.level, request.split)
        contexts = _drawn(request, text)
    else:
        text = None
        ids = encoded_prompt(writer, prompt)
        contexts = [_Context(ids, ids[:0], None)] * request.samples
    is_words = _is_words(ref, text)
    made = [
        _sample(writer, context, ids, seed, is_words)
        for context, ids, seed in _continued(request, writer, contexts)
    ]
    precision = {} if request.precision == "fp32" else {"precision": request.precision}
    return SamplesRecord(
        schema=SamplesRecord.SCHEMA,
        commit=current_commit(),
        command=request.command,
        models={short_titles([request.model])[0]: source_of_pass(ref, text)},
        context_tokens=request.prompt_tokens,
        tokens=request.tokens,
        top_k=request.top_k,
        temperature=request.temperature,
        seed=request.seed,
        mem_len=writer.mem_len,
        unit=text.units[0] if text else ref.capabilities.units[0],
        samples=tuple(made),
        **precision,
    )


def _drawn(request: SamplesRequest, text: ScoredText) -> list[_Context]:
    """Contexts from anywhere in the split, each with as many tokens after it as are added."""
    assert request.prompt_tokens is not None
    count, behind = request.prompt_tokens, request.tokens
    highest = len(text.ids) - count - behind
    if highest < 0:
        raise UserError(
            f"--prompt-tokens {count:,} and --tokens {behind:,}: {text.place} has "
            f"{len(text.ids):,} tokens",
            "give fewer",
        )
    places = np.random.default_rng(request.seed).integers(0, highest + 1, request.samples)
    return [
        _Context(text.ids[p : p + count], text.ids[p + count : p + count + behind], p)
        for p in places.tolist()
    ]


def _continued(
    request: SamplesRequest, writer: Writer, contexts: list[_Context]
) -> Iterator[tuple[_Context, list[int], int]]:
    """Each context, the ids drawn after it, and their seed, which no other sample changes."""
    for first in range(0, len(contexts), writer.at_once):
        part = contexts[first : first + writer.at_once]
        seeds = [request.seed + first + number for number in range(len(part))]
        drawn = writer.draw(np.stack([each.ids for each in part]), request.tokens, seeds)
        yield from zip(part, drawn, seeds, strict=True)


def _sample(
    writer: Writer, context: _Context, ids: list[int], seed: int, is_words: bool
) -> SampledText:
    again, loss = writer.redraw(context.ids, ids, seed)
    reference_loss = None
    if len(context.reference):
        _, reference_loss = writer.redraw(context.ids, context.reference.tolist(), seed)
    shown = list(_texts(writer, context, ids))
    if is_words:
        shown = [detokenized(each) for each in shown]
    return SampledText(
        place=context.place,
        context=shown[0],
        sample=shown[1],
        reference=shown[2],
        ids=tuple(ids),
        loss=loss,
        reference_loss=reference_loss,
        agreeing=sum(one == other for one, other in zip(ids, again, strict=True)),
    )


def _texts(writer: Writer, context: _Context, ids: list[int]) -> Iterator[str]:
    """Context, sample and reference; spaces at the seam stay where the vocabulary puts them."""
    begin = writer.decode(context.ids.tolist())
    yield begin
    for added in (ids, context.reference.tolist()):
        whole = writer.decode([*context.ids.tolist(), *added])
        yield whole.removeprefix(begin) if whole.startswith(begin) else writer.decode(added)


def _is_words(ref: ModelRef, text: ScoredText | None) -> bool:
    """Whether the text is words divided by spaces, which no person writes so."""
    if text is not None and text.level is not None:
        return text.level == "word"
    if text is not None and text.name and text.name in CORPORA:
        return CORPORA[text.name].level == "word"
    return ref.capabilities.level == "word"

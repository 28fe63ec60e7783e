"""`generate`: continues the user's text with a model's own tokens."""

import math
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from txlbench.commands.model_ref import LoadedModel, ModelRef, resolve
from txlbench.commands.pretrained import continue_text
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import Level
from txlbench.config.measurements import evaluation_clamp, segments_of, training_span
from txlbench.errors import UserError
from txlbench.evaluation.generation import Sampling, generate
from txlbench.machine import own_device


@dataclass(frozen=True)
class GenerateRequest:
    """A call of `generate`.

    Attributes:
        prompt: the text to continue; `prompt_file` has it otherwise.
        tokens: symbols to add.
        mem_len: cached states; None as trained, at least a segment.
        level: what a token is, where only the vocabulary tells it.
    """

    model: str
    prompt: str | None = None
    prompt_file: Path | None = None
    tokens: int = 500
    top_k: int | None = 40
    temperature: float = 1.0
    seed: int = 1
    mem_len: int | None = None
    level: Level | None = None
    device: str = "auto"
    checkpoint: str = "best"


@dataclass(frozen=True)
class Sample:
    """A text that a model continued.

    Attributes:
        text: the prompt as the vocabulary writes it, and what the model added.
        ids: of the symbols added.
        mem_len: cached states; None where the newest tokens were read anew for each.
        seconds: that the tokens took, the prompt included.
    """

    text: str
    ids: list[int]
    mem_len: int | None
    seconds: float


def generate_text(request: GenerateRequest) -> Sample:
    """Draws `request.tokens` symbols after the prompt.

    Raises:
        UserError: if the prompt is empty or not of the model's symbols.
    """
    prompt = _prompt(request)
    if math.isnan(request.temperature):
        raise UserError("--temperature: not a number", "1 leaves probabilities as they are")
    device = own_device(request.device)
    ref = resolve(request.model, request.checkpoint)
    if ref.pretrained is not None:
        return _pretrained_sample(request, prompt, ref, device)
    vocabulary = ref.vocabulary(request.level)
    if vocabulary is None:
        raise UserError(
            f"{ref.reference}: has weights but no vocabulary",
            "add the source's vocabulary file, or import it with one",
        )
    ids = vocabulary.encode(prompt)
    if not len(ids):
        raise UserError("the prompt has no symbol", "give a text to continue")
    loaded = ref.load(device)
    span, segment = decoding_span(loaded, request.mem_len)
    sampling, generator = Sampling(request.top_k, request.temperature), torch.Generator(device)
    begin = time.perf_counter()
    generator.manual_seed(request.seed)
    drawn = generate(loaded.model, ids, span, segment, sampling, generator)
    added = list(islice(drawn, request.tokens))
    seconds = time.perf_counter() - begin
    mem_len = None if span is None else span.mem_len
    return Sample(vocabulary.decode([*ids, *added]), added, mem_len, seconds)


def _pretrained_sample(
    request: GenerateRequest, prompt: str, ref: ModelRef, device: torch.device
) -> Sample:
    """The prompt continued by a model of transformers, with its own tokenizer and cache."""
    for name in ("mem_len", "level"):
        if getattr(request, name) is not None:
            option = name.replace("_", "-")
            raise UserError(f"--{option}: {ref.reference} has its own", "drop the option")
    tokenizer = ref.tokenizer()
    ids, _ = tokenizer.encode(prompt)
    if not len(ids):
        raise UserError("the prompt has no token", "give a text to continue")
    loaded = ref.load(device)
    begin = time.perf_counter()
    added = continue_text(
        loaded, ids, request.tokens, request.top_k, request.temperature, request.seed
    )
    seconds = time.perf_counter() - begin
    return Sample(tokenizer.decode([*ids, *added]), added, len(ids) + len(added), seconds)


def _prompt(request: GenerateRequest) -> str:
    if (request.prompt is None) == (request.prompt_file is None):
        raise UserError("--prompt and --prompt-file: one of them is needed", "give one")
    if request.prompt is not None:
        return request.prompt
    assert request.prompt_file is not None
    try:
        return request.prompt_file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{request.prompt_file}: {error.strerror}", "give a text file") from error


def decoding_span(
    loaded: LoadedModel, mem_len: int | None = None
) -> tuple[AttentionSpan | None, int]:
    """The span with memory where it is coherent, else None; and the tokens of a segment.

    Memory is as long as asked for, as trained, or a segment where it had none.
    """
    settings, known = loaded.settings, loaded.ref.capabilities
    trained, tgt_len = training_span(settings), segments_of(settings).tgt_len
    if mem_len is not None and not known.attends:
        raise UserError(
            f"--mem-len: the state of {settings.model.name} reaches back without limit",
            "drop the option",
        )
    if not known.reads_in_segments:
        if mem_len is not None:
            raise UserError(
                f"--mem-len: {settings.model.name} starts anew at every segment",
                "drop the option: the newest tokens are read anew for each",
            )
        return None, tgt_len
    if mem_len is None:
        mem_len = trained.mem_len or tgt_len
    as_trained = mem_len == trained.mem_len
    span = AttentionSpan(
        mem_len=mem_len,
        clamp_len=trained.clamp_len if as_trained else evaluation_clamp(settings),
        same_length=trained.same_length and mem_len > 0,
    )
    return span, tgt_len

"""`generate`: continues the user's text with a model's own tokens."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.commands.model_ref import LoadedModel, ModelRef, resolve
from txlbench.commands.pretrained import causal_model, continue_text
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import Level
from txlbench.config.measurements import evaluation_clamp, rope_scaling, segments_of, training_span
from txlbench.data.tokenized import Tokenizer
from txlbench.data.vocabulary import Vocabulary
from txlbench.errors import UserError
from txlbench.evaluation.generation import Sampling, generate, teacher_forced
from txlbench.machine import own_device

MOST_AT_ONCE = 32
"""Texts continued together: what each reads of its own is by then most of the work."""


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
    precision: str = "fp32"


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


class Writer(Protocol):
    """A model that continues texts."""

    @property
    def mem_len(self) -> int | None:
        """Cached states; None where the newest tokens are read anew, or the cache is not ours."""

    @property
    def at_once(self) -> int:
        """Texts that are best continued together."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""

    def draw(self, ids_BN: NDArray[Any], tokens: int, seeds: Sequence[int]) -> list[list[int]]:
        """As many ids after each row of ids, drawn with a seed each."""

    def redraw(
        self, ids: NDArray[Any], continuation: Sequence[int], seed: int
    ) -> tuple[list[int], float]:
        """What it draws after the same tokens by teacher forcing, and their mean loss in nats."""


@dataclass(frozen=True)
class OwnWriter:
    """A model of this package, with a KV cache where its encoding allows one."""

    loaded: LoadedModel
    vocabulary: Vocabulary
    sampling: Sampling
    span: AttentionSpan | None
    segment: int
    device: torch.device

    @property
    def mem_len(self) -> int | None:
        """See `Writer`."""
        return None if self.span is None else self.span.mem_len

    @property
    def at_once(self) -> int:
        """As many as share the weights well, with a gigabyte of keys and values in float32."""
        model, reach = self.loaded.settings.model, (self.mem_len or 0) + self.segment
        room = 2 * reach  # see `KVCache`
        return max(1, min(MOST_AT_ONCE, 2**30 // (4 * 2 * room * model.n_layer * model.d_model)))

    def encode(self, text: str) -> NDArray[np.int64]:
        """See `Writer`."""
        return self.vocabulary.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Writer`."""
        return self.vocabulary.decode(ids)

    def draw(self, ids_BN: NDArray[Any], tokens: int, seeds: Sequence[int]) -> list[list[int]]:
        """See `Writer`."""
        model, generators = self.loaded.model, [self._generator(seed) for seed in seeds]
        drawn = generate(model, ids_BN, self.span, self.segment, self.sampling, generators)
        return np.array(list(islice(drawn, tokens))).T.tolist()

    def redraw(
        self, ids: NDArray[Any], continuation: Sequence[int], seed: int
    ) -> tuple[list[int], float]:
        """See `Writer`."""
        found: list[int] = []
        loss, generator = 0.0, self._generator(seed)
        for log_probs_NV in teacher_forced(
            self.loaded.model, ids, continuation, self.span, self.segment, self.device
        ):
            for log_probs_V in log_probs_NV:
                loss -= float(log_probs_V[continuation[len(found)]])
                found.append(int(self.sampling.draw(log_probs_V[None], [generator])))
        return found, loss / len(found)

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)


@dataclass(frozen=True)
class PretrainedWriter:
    """A model of transformers, with its own tokenizer and cache."""

    loaded: LoadedModel
    tokenizer: Tokenizer
    sampling: Sampling
    mem_len: int | None = None
    at_once: int = 1

    def encode(self, text: str) -> NDArray[np.int64]:
        """See `Writer`."""
        return self.tokenizer.encode(text)[0]

    def decode(self, ids: Sequence[int]) -> str:
        """See `Writer`."""
        return self.tokenizer.decode(ids)

    def draw(self, ids_BN: NDArray[Any], tokens: int, seeds: Sequence[int]) -> list[list[int]]:
        """See `Writer`."""
        how = self.sampling
        return [
            continue_text(self.loaded, ids_N, tokens, how.top_k, how.temperature, seed)
            for ids_N, seed in zip(ids_BN, seeds, strict=True)
        ]

    def redraw(
        self, ids: NDArray[Any], continuation: Sequence[int], seed: int
    ) -> tuple[list[int], float]:
        """See `Writer`."""
        model = causal_model(self.loaded)
        logits_NV = model.forced_logits(ids, continuation)
        targets_N = torch.tensor(continuation, device=logits_NV.device)
        loss = torch.nn.functional.cross_entropy(logits_NV, targets_N)
        how = self.sampling
        return model.redrawn(logits_NV, how.top_k, how.temperature, seed), float(loss)


def open_writer(request: GenerateRequest) -> tuple[ModelRef, Writer]:
    """The model that writes, its weights read.

    Raises:
        UserError: if it has no vocabulary, or does not take an option.
    """
    if math.isnan(request.temperature):
        raise UserError("--temperature: not a number", "1 leaves probabilities as they are")
    device, ref = own_device(request.device), resolve(request.model, request.checkpoint)
    sampling = Sampling(request.top_k, request.temperature)
    if ref.pretrained is not None:
        for name in ("mem_len", "level"):
            if getattr(request, name) is not None:
                option = name.replace("_", "-")
                raise UserError(f"--{option}: {ref.reference} has its own", "drop the option")
        return ref, PretrainedWriter(ref.load(device, request.precision), ref.tokenizer(), sampling)
    vocabulary = ref.vocabulary(request.level)
    if vocabulary is None:
        raise UserError(
            f"{ref.reference}: has weights but no vocabulary",
            "add the source's vocabulary file, or import it with one",
        )
    loaded = ref.load(device, request.precision)
    span, segment = decoding_span(loaded, request.mem_len)
    return ref, OwnWriter(loaded, vocabulary, sampling, span, segment, device)


def generate_text(request: GenerateRequest) -> Sample:
    """Draws `request.tokens` symbols after the prompt.

    Raises:
        UserError: if the prompt is empty or not of the model's symbols.
    """
    prompt = read_prompt(request)
    _, writer = open_writer(request)
    ids = encoded_prompt(writer, prompt)
    begin = time.perf_counter()
    (added,) = writer.draw(ids[None], request.tokens, [request.seed])
    seconds = time.perf_counter() - begin
    mem_len = writer.mem_len
    if isinstance(writer, PretrainedWriter):
        mem_len = len(ids) + len(added)
    return Sample(writer.decode([*ids, *added]), added, mem_len, seconds)


def encoded_prompt(writer: Writer, prompt: str) -> NDArray[np.int64]:
    """The ids of a prompt; UserError if there are none."""
    ids = writer.encode(prompt)
    if not len(ids):
        raise UserError("the prompt has no symbol", "give a text to continue")
    return ids


def read_prompt(request: GenerateRequest) -> str:
    """The prompt, as given or from its file."""
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
        rope=None if as_trained else rope_scaling(settings, mem_len + 1),
        sinks=min(trained.sinks, max(0, mem_len - 1)),
    )
    return span, tgt_len

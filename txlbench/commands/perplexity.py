"""`eval --protocol`: the perplexities that other programs would print, and why they differ."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.commands.evaluate import EvalRequest
from txlbench.commands.evaluate import evaluate as evaluate_row
from txlbench.commands.model_ref import LoadedModel, ModelRef, resolve_seeds
from txlbench.commands.same_bytes import common_text
from txlbench.config.base import displayed
from txlbench.config.measurements import evaluation_clamp, rope_scaling, segments_of
from txlbench.data.tokenized import SharedText, TokenizedText, Tokenizer, tokenized
from txlbench.errors import UserError
from txlbench.evaluation.context_losses import WindowModel
from txlbench.evaluation.context_reading import read_windows
from txlbench.evaluation.protocols import (
    ProtocolScore,
    ScoredWindow,
    hf_guide_windows,
    llama_cpp_windows,
    lm_eval_windows,
    score_protocol,
    sliding_windows,
)
from txlbench.machine import own_device
from txlbench.models.pretrained.causal_lm import CausalModel

PROTOCOLS = ("ours", "stride:N", "lm-eval", "llama.cpp", "hf-guide")
LLAMA_CPP_WINDOW = 512
"""llama-perplexity's own --ctx-size."""
GUIDE_STRIDE = 512
"""The stride of the guide."""
UNLIMITED_WINDOW = 2048
"""What lm-eval takes for a model that gives no limit."""


@dataclass(frozen=True)
class ProtocolResult:
    """What one program would print for a model on a text.

    Attributes:
        numbers: by the name that the program gives each.
        loss: nats a token, as the program averages them.
        window: tokens that the model reads at most before a target; None for a row's own regime.
        mean_context: tokens before a scored one, on average.
        how: how it was obtained and why it differs from the others.
    """

    model: str
    protocol: str
    numbers: Mapping[str, float]
    loss: float
    tokens: int
    window: int | None
    mean_context: float | None
    how: str
    corpus: str | None
    split: str
    facts: Mapping[str, object] = field(default_factory=dict)


def perplexities(
    request: EvalRequest, protocols: tuple[str, ...], window: int | None
) -> list[ProtocolResult]:
    """One result for each model, seed by seed, and protocol.

    Args:
        window: tokens that the model reads at most; None for the program's own default.

    Raises:
        UserError: if there is no such protocol, or a window is beyond what the model can read.
    """
    for protocol in protocols:
        _stride(protocol)
    _refuse_what_protocols_choose(request)
    device = own_device(request.device)
    results = []
    for ref in resolve_seeds(request.model, request.checkpoint):
        work: _Text | None = None
        for protocol in protocols:
            if protocol == "ours":
                results.append(_of_the_row(replace(request, model=ref.reference)))
                continue
            work = work or _Text.of(ref, request, device)
            results.append(work.result(protocol, window))
    return results


def _stride(protocol: str) -> int | None:
    """The N of stride:N; None for the other protocols, UserError for what is none."""
    name, _, number = protocol.partition(":")
    if name == "stride" and number.isascii() and number.isdigit() and int(number):
        return int(number)
    if protocol in PROTOCOLS and name != "stride":
        return None
    raise UserError(f"--protocol {protocol}: not one", f"choose among {', '.join(PROTOCOLS)}")


def _refuse_what_protocols_choose(request: EvalRequest) -> None:
    usual = EvalRequest(request.model)
    chosen = (
        "tokens",
        "tgt_len",
        "mem_len",
        "attention_lengths",
        "clamp_len",
        "rope_scaling",
        "sinks",
        "same_length",
    )
    for name in (*chosen, "exact", "zero_memory", "losses"):
        if getattr(request, name) != getattr(usual, name):
            option = name.replace("_", "-")
            raise UserError(f"--protocol and --{option} exclude each other", "drop one of them")


def default_window(ref: ModelRef) -> int:
    """Tokens that a model reads at once: its positions, or the reach that it was trained with."""
    known = ref.capabilities
    if ref.pretrained is not None:
        return ref.pretrained.positions or UNLIMITED_WINDOW
    if known.longest_context is not None:
        return known.longest_context
    if ref.config is None:
        return UNLIMITED_WINDOW
    segments = segments_of(ref.config)
    return segments.tgt_len + segments.memory


@dataclass(frozen=True)
class ProtocolReader:
    """A model that reads windows of tokens as other programs do: BOS is a token like others."""

    loaded: LoadedModel
    device: torch.device
    batch_size: int | None = None

    def __call__(self, contexts: NDArray[np.int64]) -> tuple[WindowModel, int]:
        """See `evaluation.protocols.Reader`."""
        model, ref, device = self.loaded.model, self.loaded.ref, self.device
        if isinstance(model, CausalModel):
            reader = replace(model.at(contexts - 1), bos=None)
            size = ref.capabilities.vocabulary_size
            at_once = reader.windows_at_once(int(contexts[-1]), size, device)
            return reader, self.batch_size or at_once
        settings = self.loaded.settings
        return read_windows(
            model,
            settings.model,
            contexts,
            device,
            clamp_len=evaluation_clamp(settings),
            windows=self.batch_size,
            rope=rope_scaling(settings, int(contexts[-1])),
        )


def rolling_loss(
    reader: ProtocolReader, ids: NDArray[np.int64], tokenizer: Tokenizer, window: int
) -> ProtocolScore:
    """The loss of a whole text as lm-eval sums it: its first token is predicted from a prefix.

    Where the tokenizer puts a BOS before texts, that one is predicted too.
    """
    stream = np.concatenate([[tokenizer.prefix], _with_bos(ids, tokenizer)])
    windows = lm_eval_windows(len(stream), window)
    return score_protocol(reader, stream, windows, reader.device)


def _with_bos(ids: NDArray[np.int64], tokenizer: Tokenizer) -> NDArray[np.int64]:
    return ids if tokenizer.bos is None else np.concatenate([[tokenizer.bos], ids])


@dataclass(frozen=True)
class _Text:
    """A text in a model's tokens, ready to be read by any protocol."""

    reader: ProtocolReader
    tokenizer: Tokenizer
    text: SharedText
    tokens: TokenizedText

    @classmethod
    def of(cls, ref: ModelRef, request: EvalRequest, device: torch.device) -> "_Text":
        split = request.split
        if split is None and request.corpus is None and ref.trained is not None:
            split = ref.trained.evaluate.split
        text = common_text([ref], request.corpus, request.level, split)
        tokenizer = ref.tokenizer()
        tokens = tokenized(text, tokenizer)
        reader = ProtocolReader(ref.load(device, request.precision), device, request.batch_size)
        return cls(reader, tokenizer, text, tokens)

    def result(self, protocol: str, window: int | None) -> ProtocolResult:
        ref = self.reader.loaded.ref
        longest = default_window(ref)
        limit = ref.capabilities.longest_context
        if ref.pretrained is not None:
            limit = ref.pretrained.positions
        size = window or (min(LLAMA_CPP_WINDOW, longest) if protocol == "llama.cpp" else longest)
        if limit is not None and size > limit:
            raise UserError(
                f"--window {size:,}: is beyond what {ref.reference} can read",
                f"give at most {limit:,}",
            )
        scored, numbers, how = self._scored(protocol, size)
        return ProtocolResult(
            ref.reference,
            protocol,
            numbers,
            scored.loss,
            scored.tokens,
            size,
            scored.mean_context,
            how,
            self.text.name,
            self.text.split,
            {
                "corpus_checksum": self.text.checksum,
                "text": "tokens joined" if self.text.joined else "as in the source",
                "bytes": len(self.text.content),
                "bytes_left_out": self.text.left_out,
                "unknown": self.tokens.unknown,
                "bos": self.tokenizer.bos is not None,
            },
        )

    def _scored(self, protocol: str, window: int) -> tuple[ProtocolScore, dict[str, float], str]:
        """The score, the program's numbers, and how they came about."""
        if protocol == "lm-eval":
            return self._lm_eval(window)
        stream, bos = _with_bos(self.tokens.ids, self.tokenizer), self.tokenizer.bos
        if protocol == "llama.cpp":
            if len(stream) < 2 * window:
                raise UserError(
                    f"--protocol llama.cpp: {len(stream):,} tokens, it wants two windows of "
                    f"{window:,}",
                    "give a smaller --window, or a longer text",
                )
            scored = self._read(stream, llama_cpp_windows(len(stream), window), bos)
            numbers = {"perplexity": displayed(scored.loss, "ppl")}
            numbers["uncertainty"] = scored.standard_error * numbers["perplexity"]
            how = (
                f"disjoint windows of {window:,} tokens, of which only the second half is scored, "
                f"so every scored token has at least {window // 2:,} before it; "
                f"{len(stream) % window:,} tokens at the end are dropped"
                + "; BOS takes the place of each window's first token"
                * (bos is not None)
            )
            return scored, numbers, how
        if protocol == "hf-guide":
            stride = min(GUIDE_STRIDE, max(1, window // 2))
            scored = self._read(stream, hf_guide_windows(len(stream), window, stride))
            how = (
                f"windows of {window:,} tokens that move on by {stride:,}; the mean of each later "
                f"window counts as {stride - 1:,} losses though it is of {stride:,} (off by one)"
                + "; BOS stands before the first window only"
                * (bos is not None)
            )
            return scored, {"perplexity": displayed(scored.loss, "ppl")}, how
        return self._sliding(protocol, stream, window)

    def _sliding(
        self, protocol: str, stream: NDArray[np.int64], window: int
    ) -> tuple[ProtocolScore, dict[str, float], str]:
        stride, bos = _stride(protocol), self.tokenizer.bos
        assert stride is not None
        if stride > window:
            raise UserError(
                f"--protocol {protocol}: the stride is beyond the window of {window:,}",
                "give a smaller stride, or a larger --window",
            )
        # The token before the window, or BOS in its place, is what the first one is told from.
        scored = self._read(stream, sliding_windows(len(stream), window, stride), bos)
        size = len(self.text.content) - (0 if bos is not None else int(self.tokens.ends[0]))
        numbers = {
            "perplexity": displayed(scored.loss, "ppl"),
            "bits_per_byte": scored.nats / math.log(2) / size,
        }
        how = (
            f"windows of {window:,} tokens that move on by {stride:,}; each token is scored once, "
            f"after {window - stride + 1:,} to {window:,} tokens where the text has them"
            + "; BOS begins every window"
            * (bos is not None)
        )
        return scored, numbers, how

    def _lm_eval(self, window: int) -> tuple[ProtocolScore, dict[str, float], str]:
        scored = rolling_loss(self.reader, self.tokens.ids, self.tokenizer, window)
        content = self.text.content
        words, size = len(re.split(r"\s+", content.decode())), len(content)
        numbers = {
            "word_perplexity": displayed(scored.nats / words, "ppl"),
            "byte_perplexity": displayed(scored.nats / size, "ppl"),
            "bits_per_byte": scored.nats / math.log(2) / size,
        }
        prefix = self.tokenizer.decode([self.tokenizer.prefix])
        how = (
            f"disjoint windows of {window:,} tokens, each of whose first has one token before it; "
            f"the last window alone has full context; the text begins after {prefix!r}"
            + ", and the BOS that the tokenizer adds is scored too"
            * (self.tokenizer.bos is not None)
            + f"; per word ({words:,}) and byte ({size:,}) instead of per token"
        )
        return scored, numbers, how

    def _read(
        self, stream: NDArray[np.int64], windows: Iterator[ScoredWindow], first: int | None = None
    ) -> ProtocolScore:
        return score_protocol(self.reader, stream, windows, self.reader.device, first)


def _of_the_row(request: EvalRequest) -> ProtocolResult:
    """What `eval` says without a protocol: of a row, the number of the result table."""
    (found,) = evaluate_row(request)
    how, scored = found.measurement, found.score
    memory = f"memory of {how.mem_len:,}" if how.regime == "streaming" else f"stride {how.stride:,}"
    return ProtocolResult(
        found.model,
        "ours",
        {unit: displayed(scored.loss, unit) for unit in found.text.units},
        scored.loss,
        scored.tokens,
        None,
        None,
        f"as eval without --protocol, for a row as in the result table: {how.regime}, segments of "
        f"{how.tgt_len:,} tokens, {memory}",
        found.text.name,
        found.text.split,
        {"measurement": how.model_dump(mode="json")},
    )

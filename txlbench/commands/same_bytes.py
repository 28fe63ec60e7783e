"""Context losses of models with several tokenizers, scored on the same bytes of one text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.model_ref import ModelRef
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, Progress, ReclRequest
from txlbench.commands.texts import trained_corpus
from txlbench.config.base import Part
from txlbench.config.catalogue import Level
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp, window_rope
from txlbench.config.run_config import corpus_named
from txlbench.data.prepare import prepare
from txlbench.data.tokenized import SharedText, TokenizedText, shared_text, tokenized
from txlbench.errors import UserError
from txlbench.evaluation.byte_units import (
    ByteUnits,
    choose_units,
    common_boundaries,
    longest_usable,
    unit_windows,
)
from txlbench.evaluation.windows import Windows
from txlbench.records.loss_file import LossFile, read_loss_file

LEVELS: Sequence[Level] = ("byte", "char", "word")
"""A model of a level reads the texts of the levels from there on."""


def tokenizers_differ(refs: Iterable[ModelRef]) -> bool:
    """Whether models are known to cut text differently, so that they share no tokens."""
    found = set()
    for ref in refs:
        if ref.open_tokenizer is None and ref.capabilities.tokens is None:
            return False
        tokens = frozenset(ref.capabilities.tokens or ())
        found.add((ref.open_tokenizer and ref.tokenizer().fingerprint, tokens))
    return len(found) > 1


def common_text(
    refs: Sequence[ModelRef], corpus: str | None, level: Level | None, split: Part | None
) -> SharedText:
    """The text that all of `refs` are scored on, of a corpus or of the one they were trained on.

    Raises:
        UserError: if no corpus is given, and they were trained on none, or on several.
    """
    if corpus is not None:
        config = corpus_named(corpus, level)
        return shared_text(prepare(config), split or ("all" if config.path else "test"))
    if level is not None:
        raise UserError(f"--level {level}: is of a text", "give it with --corpus")
    trained = {ref.reference: trained_corpus(ref) for ref in refs if ref.trained is not None}
    if not trained:
        raise UserError(f"{refs[0].reference}: was not trained here", "give --corpus")
    if len({each.checksum for each in trained.values()}) > 1:
        raise UserError(
            f"--models: {', '.join(trained)} were trained on different texts", "give --corpus"
        )
    own = max(trained.values(), key=lambda each: LEVELS.index(each.level))
    return shared_text(own, split or "test")


@dataclass(frozen=True)
class BytePass:
    """One model over the windows of a text whose losses lie at `path` once it is done.

    Attributes:
        tokens: the text as the model cuts it.
        units: targets and contexts, the same for all models of the call.
    """

    ref: ModelRef
    text: SharedText
    tokens: TokenizedText
    units: ByteUnits
    request: ReclRequest
    path: Path

    @property
    def targets(self) -> NDArray[np.int64]:
        """The byte at which each target begins."""
        return self.units.starts

    @property
    def windows(self) -> int:
        """The number of windows to read."""
        return len(self.token_windows())

    @property
    def longest(self) -> int | None:
        """The longest context in bytes that the model can use; None without a limit."""
        return longest_usable(self.tokens, self.units, self.ref.capabilities.longest_context)

    def token_windows(self) -> Windows:
        """The windows in the model's tokens."""
        return unit_windows(self.tokens, self.units, self.ref.capabilities.longest_context)

    def compute(self, progress: Progress, before: int, total: int) -> None:
        """Reads what is not read yet; `before` of all windows belong to earlier models."""
        from txlbench.commands.context_pass import compute_units

        compute_units(self, lambda done, _: progress(self.ref.reference, before + done, total))

    def read(self) -> LossFile:
        """The stored losses, called as the user calls the model."""
        return replace(read_loss_file(self.path), name=self.ref.reference)


def byte_passes(refs: Sequence[ModelRef], request: ReclRequest) -> list[BytePass]:
    """A pass for each of `refs` over the same bytes.

    Raises:
        UserError: if they cannot share a text, it is too short or not theirs to read, or a
            context is beyond what a model has positions for.
    """
    if request.positions is not None:
        raise UserError(
            "--models: loss files beside models with several tokenizers, whose targets are others",
            "name the models themselves, or loss files only",
        )
    text = common_text(refs, request.corpus, request.level, request.split)
    tokenizers = {ref.reference: ref.tokenizer() for ref in refs}
    tokens = {name: tokenized(text, each) for name, each in tokenizers.items()}
    contexts = request.contexts or DEFAULT_CONTEXTS
    units = choose_units(common_boundaries(list(tokens.values())), contexts, request.tokens)
    shared: dict[str, object] = {
        "text": text.digest,
        "tokenizers": sorted({each.fingerprint for each in tokenizers.values()}),
        "contexts": contexts,
        "targets": request.tokens,
        "attention_length": request.attention_length,
        "precision": request.precision,
    }
    if request.sinks is not None:
        shared["sinks"] = request.sinks
    passes = []
    for ref in refs:
        _check_positions(ref, tokens[ref.reference], units)
        clamp = None if ref.config is None else evaluation_clamp(ref.config)
        own: dict[str, object] = {"weights": ref.fingerprint(), "clamp_len": clamp}
        rope = window_rope(ref.config, request.attention_length or contexts[-1])
        if rope is not None:
            own["rope"] = rope.model_dump()
        name = fingerprint({**shared, **own}, 16)
        path = ref.losses / f"{text.split}-bytes-{name}.npz"
        passes.append(BytePass(ref, text, tokens[ref.reference], units, request, path))
    return passes


def _check_positions(ref: ModelRef, tokens: TokenizedText, units: ByteUnits) -> None:
    """Refuses (UserError) contexts of more tokens than the model has positions for."""
    limit = longest_usable(tokens, units, ref.capabilities.positions)
    if limit is not None:
        raise UserError(
            f"{ref.reference}: context {units.contexts[-1]:,} is beyond its "
            f"{ref.capabilities.positions:,} positions, in bytes of this text",
            f"give contexts of at most {limit:,} bytes",
        )

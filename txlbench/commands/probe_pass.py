"""Reads one model for all probes; what is read is kept beside its weights.

Each pass is named for the windows that are read and for what queries see.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from txlbench.commands.context_pass import window_model
from txlbench.commands.evaluate import wrong_vocabulary
from txlbench.commands.model_ref import LoadedModel, ModelRef
from txlbench.commands.probe_request import TOKENS, ProbeRequest, ProbeWatch
from txlbench.commands.texts import ScoredText, source_of_pass
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp, segments_of, window_rope
from txlbench.errors import UserError
from txlbench.evaluation.context.changed_windows import TokenWindows, last_losses
from txlbench.evaluation.context.far_context import (
    Change,
    FarLosses,
    changed_windows,
    evictions,
    far_contexts,
    plain_windows,
    why_not_ablated,
)
from txlbench.evaluation.context.forgetting import (
    FEWEST_TEXTS,
    Recall,
    copy_windows,
    forgetting_curve,
    scored_tokens,
    text_starts,
)
from txlbench.evaluation.context.resampling import interval
from txlbench.evaluation.context_losses import PartialLosses, StorageError
from txlbench.machine import own_device
from txlbench.records.context_schema import Missing
from txlbench.records.finding_schema import ReclSource
from txlbench.records.probe_schema import ForgettingCurve, ProbeResult

EVICTION = "cache eviction"


@dataclass(frozen=True)
class ModelProbes:
    """One model on one text.

    Attributes:
        missing: what turns out not to be available.
    """

    ref: ModelRef
    text: ScoredText
    request: ProbeRequest
    watch: ProbeWatch
    missing: list[Missing] = field(default_factory=list)

    @cached_property
    def source(self) -> ReclSource:
        return source_of_pass(
            self.ref,
            self.text,
            precision=self.request.precision,
            recall_attention_length=self._recall_attention_length,
        )

    def result(self, title: str) -> ProbeResult:
        """All probes that were asked for."""
        probes = {*self.request.probes}
        forgetting = self._forgetting() if "forgetting" in probes else None
        found = ProbeResult(model=title, context=self._context, forgetting=forgetting)
        if probes & {"far", "cache"}:
            try:
                positions = self._positions
            except UserError as error:
                self._lacks("far context and caches", error)
            else:
                found = self._with_far_context(found, positions)
        return found.model_copy(update={"missing": tuple(self.missing)})

    def _with_far_context(self, result: ProbeResult, positions: NDArray[np.int64]) -> ProbeResult:
        """The result with what single targets tell."""
        losses = self._far_losses()
        resampling = losses.resampling(positions, self.request.seed)
        far = tuple(far_contexts(losses, resampling))
        self.missing.extend(why_not_ablated(far, resampling))
        if resampling.problem:
            self.missing.append(Missing(measure="intervals", reason=resampling.problem))
        return result.model_copy(
            update={
                "tokens": len(positions),
                "blocks": resampling.blocks,
                "full": interval(resampling.means(losses.full)),
                "far": far,
                "evictions": tuple(evictions(losses, resampling)),
            }
        )

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """[T]: the targets; as many as there are where nobody said how many."""
        self.ref.check_contexts((self.request.whole,))
        tokens, length = self.request.tokens, len(self.text.ids)
        if tokens is None:
            tokens = max(1, min(TOKENS, length - self.request.whole))
        asked = replace(self.request, tokens=tokens)
        return asked.positions_in(length, self.text.period).array

    @property
    def _context(self) -> int:
        """n, or what the model can use of it."""
        asked = self.request.whole
        longest = self.ref.capabilities.longest_context
        return asked if longest is None else min(asked, longest)

    def _far_losses(self) -> FarLosses:
        ids, positions, context = self.text.ids, self._positions, self._context
        full = self._losses(plain_windows(ids, positions, context))
        if problem := wrong_vocabulary(self.ref, float(full.mean())):
            raise UserError(problem, "give the corpus it was trained on")
        nearest = [k for k in self.request.nearest if k < context]
        if len(nearest) < len(self.request.nearest):
            why = f"the model can use {context} tokens only"
            self.missing.append(Missing(measure=f"contexts beyond {context}", reason=why))
        found = FarLosses(full, {}, {}, {}, {})
        if "far" not in self.request.probes:
            return self._with_caches(found, nearest)
        cut = {k: self._losses(plain_windows(ids, positions, k)) for k in nearest}
        changed = {(k, name): loss for k in nearest for name, loss in self._changed(k)}
        return self._with_caches(replace(found, cut=cut, changed=changed), nearest)

    def _changed(self, near: int) -> Iterator[tuple[str, NDArray[np.float64]]]:
        for name in self.request.changes:
            try:
                windows = changed_windows(
                    self.text.ids, self._positions, near, self._context, Change.parse(name),
                    self.request.seed,
                )  # fmt: skip
            except UserError as error:
                self._lacks(f"{name} beyond {near} tokens", error)
                continue
            yield name, self._losses(windows)

    def _with_caches(self, found: FarLosses, nearest: Sequence[int]) -> FarLosses:
        """The losses with those of caches of `nearest` keys, as far as the model allows them."""
        if "cache" not in self.request.probes:
            return found
        source, sinks = self.ref.pretrained, self.request.kept_sinks
        allows = self.ref.capabilities.attends if source is None else source.takes_attention_length
        if not allows:
            why = "no mask decides what the model sees"
            self.missing.append(Missing(measure=EVICTION, reason=why))
            return found
        windows = plain_windows(self.text.ids, self._positions, self._context)
        try:
            window = {k: self._losses(windows, attention_length=k) for k in nearest}
            if source is None:
                why = "they are of pretrained models; memory here holds the newest tokens only"
                self.missing.append(Missing(measure="sinks", reason=why))
                return replace(found, window=window)
            kept = {
                k: self._losses(windows, attention_length=k - sinks, sinks=sinks)
                for k in nearest
                if k > sinks
            }
        except UserError as error:
            self._lacks(EVICTION, error)
            return found
        return replace(found, window=window, sinks=kept)

    def _forgetting(self) -> ForgettingCurve | None:
        recalls: dict[int, Recall] = {}
        known = self.ref.capabilities
        limits = [each for each in (known.longest_context, known.positions) if each is not None]
        for length in self.request.lengths:
            starts = text_starts(len(self.text.ids), length, self.request.texts)
            try:
                if limits and self._recall_lead + 2 * length - 1 > min(limits):
                    raise UserError(f"the model can use {min(limits)} tokens only", "")
                if len(starts) < FEWEST_TEXTS:
                    raise UserError(
                        f"{len(starts)} texts, and {FEWEST_TEXTS} are needed", "give a longer text"
                    )
                recalls[length] = self._recall(length, starts)
            except UserError as error:
                self._lacks(f"recall of {length} tokens", error)
        return forgetting_curve(recalls, self.request.seed) if recalls else None

    def _recall(self, length: int, starts: NDArray[np.int64]) -> Recall:
        return Recall.of(
            *(
                self._read(
                    windows,
                    scored_tokens(length),
                    attention_length=self._recall_attention_length,
                    with_hits=True,
                )
                for windows in copy_windows(self.text.ids, length, starts, self._recall_lead)
            )
        )

    @property
    def _recall_lead(self) -> int:
        """Tokens of other text that are read before, to fill a memory; models are trained so."""
        return (self._recall_attention_length or 1) - 1

    @property
    def _recall_attention_length(self) -> int | None:
        """Keys that queries see where a model's own memory was asked for; None for all."""
        if not self.request.own_memory or self.ref.config is None:
            return None
        memory = segments_of(self.ref.config).memory
        return memory + 1 if memory and self.ref.capabilities.attends else None

    def _lacks(self, measure: str, error: UserError) -> None:
        """Notes why there is no such measure; what keeps losses from being kept ends the call."""
        if isinstance(error, StorageError):
            raise error
        self.missing.append(Missing(measure=measure, reason=error.problem))

    def _losses(
        self,
        windows: TokenWindows,
        attention_length: int | None = None,
        sinks: int | None = None,
    ) -> NDArray[np.float64]:
        """[W]: the loss on the last token of each window."""
        found = self._read(windows, 1, attention_length=attention_length, sinks=sinks)
        return found[:, 0, 0].astype(np.float64)

    def _read(
        self,
        windows: TokenWindows,
        scored: int,
        *,
        attention_length: int | None = None,
        sinks: int | None = None,
        with_hits: bool = False,
    ) -> NDArray[np.float32]:
        """See `last_losses`; what earlier calls read is not read again."""
        ref, request, device = self.ref, self.request, own_device(self.request.device)
        asked = replace(request, attention_length=attention_length, sinks=sinks)
        longest = np.array([max(map(len, windows)) - 1])
        decides: dict[str, object] = {
            "weights": self.source.model,
            "windows": _checksum(windows),
            "scored": scored,
            "hits": with_hits,
            "attention_length": attention_length,
            "sinks": sinks,
            "clamp_len": None if ref.config is None else evaluation_clamp(ref.config),
            "precision": request.precision,
        }
        rope = window_rope(ref.config, attention_length or int(longest[0]))
        if rope is not None:
            decides["rope"] = rope.model_dump()
        path = ref.losses / f"probe-{fingerprint(decides, 16)}.f4"
        with PartialLosses(path) as kept:
            found = last_losses(
                lambda: window_model(self._loaded, asked, longest, device, self.text.ids),
                windows,
                scored,
                kept,
                with_hits=with_hits,
                device=device,
                progress=self.watch.of(ref.reference),
            )
        if not np.isfinite(found).all():
            path.unlink()
            raise UserError(f"{ref.reference}: a loss is not a number", "train it anew")
        return found

    @cached_property
    def _loaded(self) -> LoadedModel:
        return self.ref.load(own_device(self.request.device), self.request.precision)


def _checksum(windows: TokenWindows) -> str:
    digest = hashlib.sha256()
    for window in windows:
        digest.update(len(window).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(window, dtype="<i8").data)
    return digest.hexdigest()

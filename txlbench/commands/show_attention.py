"""`attention`: where the heads of one model attend, and what their scores consist of."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from txlbench.commands.context_text import pieces_of
from txlbench.commands.model_ref import LoadedModel, resolve
from txlbench.commands.names import short_titles
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.commands.texts import ScoredText, read_text, source_of_pass
from txlbench.config.base import Part
from txlbench.config.catalogue import Level
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import Measurement, at_attention_length, check_length, segments_of
from txlbench.data.vocabulary import EOS
from txlbench.errors import UserError
from txlbench.evaluation.attention_reading import (
    AttentionPlan,
    fitting,
    read_attention,
    read_attention_windows,
)
from txlbench.evaluation.attention_summary import (
    Head,
    head_attention,
    rounded,
    term_attention,
    widest_heads,
)
from txlbench.evaluation.attention_tally import BLOCKS, AttentionTally
from txlbench.machine import current_commit, device_memory, own_device
from txlbench.models.architectures.architecture_model import ArchitectureModel
from txlbench.models.interface import dtype_name
from txlbench.models.pretrained.causal_lm import CausalModel
from txlbench.records.attention_schema import (
    AttentionRecord,
    HeadRows,
    ShownTargets,
)
from txlbench.records.experiment_directory import RESULTS
from txlbench.reporting.figures.style import Look

TOKENS = 10_000
WINDOW = 256
"""Tokens of a window of a model of transformers, which returns the attention of all layers."""

MOST_SHOWN = {"heads": 12, "targets": 60}
"""Heads and consecutive targets whose attention is shown as it is."""

Progress = Callable[[str, int, int], None]
"""Called with the model, and the segments or windows read and to be read."""


@dataclass(frozen=True)
class AttentionRequest:
    """A call of `attention`.

    Attributes:
        tokens: queries that count, spread evenly over the split; all of it with `whole`.
        attention_length: keys that queries see; None for as many as in training.
        heads: those whose attention to single tokens is shown; None for the widest one of the
            first, the middle and the last layer.
        at: place in the split of the first target shown; None to draw one by `seed`.
        targets: consecutive targets shown.
        out: the directory of results; default results/attention-<hash>.
    """

    model: str
    corpus: str | None = None
    level: Level | None = None
    split: Part | None = None
    tokens: int = TOKENS
    whole: bool = False
    attention_length: int | None = None
    heads: tuple[Head, ...] | None = None
    at: int | None = None
    targets: int = 12
    seed: int = 0
    device: str = "auto"
    checkpoint: str = "best"
    out: Path | None = None
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))


UNHASHED = ("out", "command", "device")


def run_attention(
    request: AttentionRequest, progress: Progress, look: Look | None = None
) -> PublishedFinding:
    """Reads the model and writes attention.json, tables, figures and a page."""
    asked = {key: value for key, value in vars(request).items() if key not in UNHASHED}
    directory = request.out or RESULTS / f"attention-{fingerprint(asked)}"
    return publish(directory / "attention.json", lambda: measure_attention(request, progress), look)


def measure_attention(
    request: AttentionRequest, progress: Progress = lambda *_: None
) -> AttentionRecord:
    """Reads the model once over the text. Writes nothing.

    Raises:
        UserError: if there is no such model, it has no attention, or the text is too short.
    """
    ref = resolve(request.model, request.checkpoint)
    if not ref.capabilities.attends and ref.pretrained is None:
        raise UserError(f"{request.model}: has no attention", "give a model that has")
    text = read_text(ref, request.corpus, request.level, request.split)
    reading = _Reading(request, ref.load(own_device(request.device)), text)
    reading.check()
    plan = reading.plan
    tally = reading.read(plan, lambda done, total: progress(request.model, done, total))
    has_first = plan.measurement.regime == "windows" or reading.apart > 0
    heads = tuple(head_attention(tally, has_first))
    return AttentionRecord(
        schema=AttentionRecord.SCHEMA,
        commit=current_commit(),
        command=request.command,
        models={short_titles([request.model])[0]: source_of_pass(ref, text)},
        memory=None if ref.config is None else ref.config.model.memory,
        keys=(plan.least, plan.keys),
        adds_bos=reading.adds_bos,
        apart=reading.apart,
        regime=plan.measurement.regime,
        queries=int(tally.counts_Z.sum()),
        clamp_len=plan.measurement.clamp_len,
        dtype=reading.dtype,
        row_error=tally.row_error,
        leak=tally.leak,
        silent_layers=tuple(n + 1 for n in range(reading.depth) if n not in tally.layers),
        heads=heads,
        terms=tuple(term_attention(tally)),
        shown=reading.shown(widest_heads(heads)),
    )


@dataclass(frozen=True)
class _Reading:
    """How one model is read for its attention."""

    request: AttentionRequest
    loaded: LoadedModel
    text: ScoredText

    @property
    def device(self) -> torch.device:
        return own_device(self.request.device)

    @cached_property
    def windows(self) -> CausalModel | None:
        """The network of transformers, which gives the attention of windows; None for ours."""
        model = self.loaded.model
        if isinstance(model, CausalModel):
            return model
        return CausalModel(model.module) if isinstance(model, ArchitectureModel) else None

    @property
    def depth(self) -> int:
        if self.windows is None:
            return self.loaded.settings.model.n_layer
        return int(self.windows.network.config.get_text_config(decoder=True).num_hidden_layers)

    @property
    def heads(self) -> int:
        """Heads of a layer, as far as bounding memory needs it."""
        if self.windows is None:
            return self.loaded.settings.model.n_head
        config = self.windows.network.config.get_text_config(decoder=True)
        return int(getattr(config, "num_attention_heads", 1) or 1)

    @property
    def dtype(self) -> str:
        return dtype_name(self.loaded.model if self.windows is None else self.windows.network)

    @property
    def adds_bos(self) -> bool:
        return self.windows is not None and self.windows.bos is not None

    @property
    def apart(self) -> int:
        """First keys that have no distance: a memory's sinks, or the first key of a window."""
        return self.plan.measurement.sinks if self.windows is None else 1

    @cached_property
    def plan(self) -> AttentionPlan:
        """The queries that count."""
        return AttentionPlan(self._measurement(), len(self.text.ids) - 1)

    @property
    def keys(self) -> int:
        """Keys that a query sees: as asked, or as many as the last one of a segment in training."""
        asked, config = self.request.attention_length, self.loaded.ref.config
        limit = self.loaded.ref.capabilities.positions
        if config is not None:
            trained = segments_of(config)
            length, limit = trained.memory + trained.tgt_len, config.model.learned_positions
        else:
            length = min(WINDOW, limit or WINDOW, max(1, len(self.text.ids) - 1))
        if limit is not None and (asked or length) > limit:
            raise UserError(
                f"--attention-length {asked or length:,}: {self.request.model} has {limit:,} "
                "positions",
                f"give at most {limit:,}",
            )
        return asked or length

    def _measurement(self) -> Measurement:
        """A pass whose streams are the blocks from which intervals come."""
        # All of them are asked for by number, so that streams have a lead-in there too.
        tokens = len(self.text.ids) - 1 if self.request.whole else self.request.tokens
        if self.windows is not None:
            return Measurement(
                regime="windows",
                split=self.text.split,
                tgt_len=self.keys,
                stride=max(1, self.keys // 4),
                attention_length=self.keys,
                batch_size=BLOCKS,
                tokens=tokens,
            )
        config = self.loaded.settings
        evaluate = config.evaluate.model_copy(update={"tokens": tokens, "batch_size": BLOCKS})
        changed = config.model_copy(update={"evaluate": evaluate})
        found = at_attention_length(changed, self.text.split, self.keys)
        return fitting(found, self.heads) if config.model.remembers_inputs else found

    def check(self) -> None:
        """Refuses (UserError) heads and targets that there are not, before anything is read."""
        for name, found in (("heads", self.request.heads or ()), ("targets", self.request.targets)):
            count = found if isinstance(found, int) else len(found)
            if count > MOST_SHOWN[name]:
                raise UserError(
                    f"--{name}: {count:,} are more than a figure shows",
                    f"give at most {MOST_SHOWN[name]}",
                )
        for layer, head in self.request.heads or ():
            if not (1 <= layer <= self.depth and 1 <= head <= self.heads):
                raise UserError(
                    f"--heads: {layer}.{head} found; {self.request.model} has {self.depth} layers "
                    f"of {self.heads} heads",
                    "give LAYER.HEAD, from 1",
                )
        check_length(self.plan.measurement, self.plan.predictions)
        self._check_memory()
        self._check_targets()

    def _check_memory(self) -> None:
        """Refuses (UserError) attention that no memory holds: of a query, or of a whole window."""
        keys, measurement = self.keys, self.plan.measurement
        in_windows = measurement.regime == "windows"
        numbers = self.heads * keys * (keys if in_windows else measurement.batch_size)
        if self.windows is not None:  # transformers returns all layers at once
            numbers *= self.depth
        needed, limit = 4 * numbers, device_memory(str(self.device))
        if limit is not None and needed > limit:
            raise UserError(
                f"--attention-length {keys:,}: the attention of {self.depth} layers of "
                f"{self.heads} heads takes at least {needed / 1e9:,.1f} GB of memory, where there "
                f"are {limit / 1e9:,.1f}",
                "give a shorter one",
            )

    def read(
        self, plan: AttentionPlan, watch: Callable[[int, int], None] = lambda *_: None
    ) -> AttentionTally:
        """The attention of the queries of a plan; those given one by one are kept so."""
        shown = plan.given or range(0)
        apart, bos = self.apart, int(self.adds_bos)
        if shown and self.windows is not None:
            apart = bos  # the first token of the text is shown like any other
        reach, common = (keys - apart + bos for keys in (plan.keys, plan.least))
        device = self.device
        tally = AttentionTally(reach, common, plan.predictions, device, shown, apart)
        if self.windows is None:
            asked = (plan, self.heads, tally, device, watch)
            read_attention(self.loaded.model, self.text.ids, *asked)
        else:
            read_attention_windows(
                self.windows, self.text.ids, plan, self.heads, tally, device, watch
            )
        if not tally.layers:
            raise UserError(
                f"{self.request.model}: transformers returns no attention of it",
                "give a model whose layers attend",
            )
        return tally

    def shown(self, widest: Sequence[Head]) -> ShownTargets:
        """Consecutive targets, and the attention of chosen heads to what came before them."""
        plan, request = self.plan, self.request
        count, first = self._targets, self._first_target
        queries = range(first - 1, first - 1 + count)
        tally = self.read(replace(plan, given=queries))
        chosen = request.heads or widest
        if silent := [layer for layer, _ in chosen if (layer - 1) not in tally.layers]:
            raise UserError(f"--heads: layer {silent[0]} gives no attention", "give another one")
        rows = tally.rows
        seen = 1 + int((torch.stack([*rows.values()]) > 0).any(0).any(0).nonzero().max())
        begin = max(0, first - seen)
        ids = self.text.ids[begin : first + count]
        pieces = pieces_of(self.loaded.ref, ids)
        tokens = [str(n) for n in ids.tolist()] if pieces is None else [pieces[n] for n in ids]
        if self.text.level == "word":
            tokens = ["\n" if token == EOS else f" {token}" for token in tokens]
        return ShownTargets(
            first=begin,
            tokens=tuple(tokens),
            count=count,
            is_text=pieces is not None,
            heads=tuple(
                HeadRows(
                    layer=layer,
                    head=head,
                    rows=tuple(rounded(rows[layer - 1, q][head - 1, :seen]) for q in queries),
                )
                for layer, head in chosen
            ),
        )

    @property
    def _targets(self) -> int:
        """How many are shown."""
        return min(self.request.targets, self.plan.predictions - self.plan.least + 1)

    def _check_targets(self) -> None:
        plan, asked, count = self.plan, self.request.at, self._targets
        highest = plan.predictions - count + 1
        if asked is not None and not plan.least <= asked <= highest:
            raise UserError(
                f"--at {asked:,}: targets there do not have {plan.least:,} tokens before them and "
                f"{count} after",
                f"give {plan.least:,} to {highest:,}",
            )

    @property
    def _first_target(self) -> int:
        """Place of the first target: as asked, or one that is drawn."""
        plan, asked = self.plan, self.request.at
        if asked is not None:
            return asked
        highest = plan.predictions - self._targets + 1
        return int(np.random.default_rng(self.request.seed).integers(plan.least, highest + 1))

"""Computes the context losses of one model on a text and stores them as a loss file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue

from txlbench.commands.evaluate import wrong_vocabulary
from txlbench.commands.model_ref import LoadedModel, ModelRef
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, ReclRequest
from txlbench.commands.texts import ScoredText
from txlbench.config.measurements import evaluation_clamp, segments_of, training_span, window_rope
from txlbench.errors import UserError
from txlbench.evaluation.context_losses import (
    PartialLosses,
    Progress,
    WindowModel,
    context_losses,
    window_losses,
)
from txlbench.evaluation.context_reading import TOKENS, read_windows
from txlbench.machine import own_device
from txlbench.models.interface import LanguageModel, dtype_name
from txlbench.models.pretrained.causal_lm import CausalModel
from txlbench.models.pretrained.visible_keys import VisibleKeys
from txlbench.records.loss_file import LossFile, write_loss_file
from txlbench.world import outer_world

if TYPE_CHECKING:
    from txlbench.commands.same_bytes import BytePass


def compute(
    ref: ModelRef,
    text: ScoredText,
    positions: NDArray[np.int64],
    request: ReclRequest,
    path: Path,
    progress: Progress,
) -> None:
    """Writes the losses to `path`; what is finished lies beside it until all is.

    Raises:
        UserError: if somebody else's model knows nothing of the text, or a loss is not a number.
    """
    device = own_device(request.device)
    loaded = ref.load(device, request.precision)
    contexts = np.array(request.contexts or DEFAULT_CONTEXTS, dtype=np.int64)
    longest = ref.capabilities.longest_context
    usable = np.unique(contexts if longest is None else np.minimum(contexts, longest))
    model, at_once = window_model(loaded, request, usable, device, text.ids)

    def check(mean: float) -> None:
        if problem := wrong_vocabulary(ref, mean):
            raise UserError(problem, "give the corpus it was trained on")

    with PartialLosses(path.with_suffix(".part"), outer_world(device)) as kept:
        losses = context_losses(
            model,
            text.ids,
            contexts,
            positions,
            kept,
            longest=longest,
            at_once=at_once,
            device=device,
            progress=progress,
            check=check,
        )
        found = LossFile(
            losses,
            contexts,
            positions,
            name=ref.reference,
            corpus=text.checksum,
            split=text.split,
            vocabulary=text.vocabulary,
            model=ref.fingerprint(),
            settings=_settings(loaded, request, text, contexts, device),
            longest=longest,
        )
        _finish(kept, path, found)


def compute_units(work: "BytePass", progress: Progress) -> None:
    """Writes the losses of one model on units of text, as `compute` does those on tokens."""
    ref, request, text, units = work.ref, work.request, work.text, work.units
    device = own_device(request.device)
    loaded, windows = ref.load(device, request.precision), work.token_windows()
    model, at_once = window_model(loaded, request, windows.scored_contexts, device, work.tokens.ids)
    with PartialLosses(work.path.with_suffix(".part"), outer_world(device)) as kept:
        losses = window_losses(
            model,
            work.tokens.ids,
            windows,
            kept,
            at_once=at_once,
            device=device,
            progress=progress,
        )
        scored = ScoredText(
            text.split, work.tokens.ids, work.tokens.unknown, text.name, text.checksum
        )
        found = LossFile(
            losses.reshape(units.context_starts.shape),
            units.contexts,
            units.starts,
            name=ref.reference,
            corpus=text.checksum,
            split=text.split,
            vocabulary="bytes",
            model=ref.fingerprint(),
            settings={
                **_settings(loaded, request, scored, units.contexts, device),
                "unit": "bpb",
                "bytes_per_unit": round(float(units.lengths.mean()), 3),
                "units_left_out": units.left_out,
                "contexts_off_by_at_most": int(np.abs(units.deviations).max()),
                "contexts_off_by_on_average": round(float(np.abs(units.deviations).mean()), 3),
                "bytes_left_out": text.left_out,
                "text": "tokens joined" if text.joined else "as in the source",
            },
            longest=work.longest,
            bytes=units.lengths,
        )
        _finish(kept, work.path, found)


def _finish(kept: PartialLosses, path: Path, found: LossFile) -> None:
    """Writes the loss file in the place of its parts, and waits for it where others write."""
    if kept.world.writes:
        write_loss_file(path, found)
        kept.path.unlink()
    kept.world.agree(True)


def window_model(
    loaded: LoadedModel,
    request: ReclRequest,
    contexts: NDArray[np.int64],
    device: torch.device,
    ids: NDArray[np.int64],
) -> tuple[WindowModel, int]:
    """The model as a `WindowModel`, and the number of windows it reads at once."""
    model, settings = loaded.model, loaded.ref.config
    if isinstance(model, LanguageModel) and settings is not None:
        return read_windows(
            model,
            settings.model,
            contexts,
            device,
            request.attention_length,
            evaluation_clamp(settings),
            request.batch_size,
            (replace(training_span(settings), stride=None), segments_of(settings).tgt_len),
            window_rope(settings, request.attention_length or int(contexts[-1])),
        )
    if isinstance(model, CausalModel):
        return _causal_reader(model, loaded.ref, request, contexts, device, ids)
    if request.attention_length is not None:
        raise UserError(
            f"--attention-length: is not to be chosen of {loaded.ref.reference}", "drop the option"
        )
    tokens = TOKENS.get(device.type, TOKENS["cuda"])
    return model, request.batch_size or max(1, tokens // int(contexts[-1]))


def _causal_reader(
    model: CausalModel,
    ref: ModelRef,
    request: ReclRequest,
    contexts: NDArray[np.int64],
    device: torch.device,
    ids: NDArray[np.int64],
) -> tuple[WindowModel, int]:
    """A pretrained model that computes losses at `contexts` only; its first window is checked."""
    ref.check_contexts((int(contexts[-1]),))
    reader = model.at(contexts - 1).seeing(_visible(request))
    first = torch.from_numpy(ids[: int(contexts[-1]) + 1].astype(np.int64)).to(device)
    if reader.visible is not None:
        reader.check_visible_keys(first, ref.reference)
    reader.check_one_pass(first, ref.reference)
    size = ref.capabilities.vocabulary_size
    at_once = reader.windows_at_once(int(contexts[-1]), size, device)
    return reader, request.batch_size or at_once


def _visible(request: ReclRequest) -> VisibleKeys | None:
    length = request.attention_length
    return None if length is None else VisibleKeys(length, request.sinks or 0)


def _settings(
    loaded: LoadedModel,
    request: ReclRequest,
    text: ScoredText,
    contexts: NDArray[np.int64],
    device: torch.device,
) -> dict[str, JsonValue]:
    """Settings by which the losses were obtained, with the contexts that were never trained."""
    ref = loaded.ref
    train = ref.trained and ref.trained.train
    rope = window_rope(ref.config, request.attention_length or int(contexts[-1]))
    untrained = train.tgt_len // 2 if train and train.loss == "half" else 0
    return {
        "attention_length": request.attention_length,
        "clamp_len": None if ref.config is None else evaluation_clamp(ref.config),
        **({} if rope is None else {"rope_scaling": f"{rope.kind} by {rope.factor:g}"}),
        "checkpoint": ref.checkpoint,
        "memory_reset": train.memory_reset if train else None,
        "untrained_contexts": [int(c) for c in contexts if c <= untrained],
        "corpus": text.name,
        "unit": text.units[0],
        "unk_share": round(text.unknown / len(text.ids), 4) if text.unknown else None,
        "dtype": _dtype(loaded.model),
        **_of_pretrained(loaded, text, contexts, device, request),
        "device": str(device),
    }


def _dtype(model: object) -> str | None:
    """The number format in which the model computes; None where it does not tell."""
    if isinstance(model, CausalModel):
        return model.dtype_name
    return dtype_name(model) if isinstance(model, LanguageModel) else None


def _of_pretrained(
    loaded: LoadedModel,
    text: ScoredText,
    contexts: NDArray[np.int64],
    device: torch.device,
    request: ReclRequest,
) -> dict[str, JsonValue]:
    """BOS and sinks of a pretrained model, and what bf16 changes: nats a token of one window."""
    pretrained = loaded.ref.pretrained
    if pretrained is None:
        return {}
    found: dict[str, JsonValue] = {"bos": pretrained.tokenizer.bos}
    visible = _visible(request)
    if visible is not None:
        found |= {"sinks": visible.sinks, "positions": "in the window"}
    if request.precision == "bf16":
        tokens_BT = torch.from_numpy(text.ids[None, : int(contexts[-1]) + 1]).to(device)
        losses = [
            model.seeing(visible).token_losses(tokens_BT)
            for model in (pretrained.load(device), loaded.model)
        ]
        found["bf16_difference"] = float((losses[1] - losses[0]).abs().mean())
    return found

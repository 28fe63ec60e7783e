"""A pretrained causal language model that gives the losses of windows of tokens.

A window is read in one pass and without a cache, so what transformers does between segments is of
no account. Logits come from the model's own forward pass, since some models scale or cap them after
their output matrix (Gemma 2, Cohere, Granite), and only where they count.
"""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from txlbench.errors import UserError
from txlbench.models.interface import DTYPE_NAMES
from txlbench.models.pretrained.visible_keys import VisibleKeys

LOGITS = {"cpu": 2**25, "cuda": 2**29}
"""Logits computed at once by type of device: the largest tensor of a large vocabulary."""
TOKENS = {"cpu": 2**10, "cuda": 2**15}
"""Tokens read at once, on a CPU for each thread."""
SCANNED = 2**23
"""Bytes of states that a selective scan holds at once on a CPU. Mamba of transformers keeps those
of all tokens, and read 8 windows of 128 at 0.6 of the speed of 2, whose states are as many."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 1.0}
"""Nats by which a loss may change when the window is cut to its context: rounding of products."""
LEAK = 1e-3
"""Logits by which a hidden token may change what follows; masked keys add exact zeros."""
ATTENDING = ("attention", "full_attention", "sliding_attention", "chunked_attention")
"""Kinds of layers that have attention, as configurations of transformers call them."""
CACHES = ("cache", "past_key_values", "cache_params")
"""Names that versions and architectures of transformers give to what is remembered."""


@dataclass(frozen=True, eq=False)
class CausalModel:
    """A model of transformers in evaluation mode, as a `WindowModel`.

    Attributes:
        network: of transformers.
        bos: the id that begins every window and does not count as context; None without one.
        columns: places in a window whose losses are computed, ascending; the others are NaN.
            None for all.
        visible: the keys that each query sees; None for all before it.
    """

    network: Any
    bos: int | None = None
    columns: NDArray[np.int64] | None = None
    visible: VisibleKeys | None = None

    def at(self, columns: NDArray[np.int64]) -> "CausalModel":
        """The same model that computes the losses at `columns` only."""
        return replace(self, columns=columns)

    def seeing(self, visible: VisibleKeys | None) -> "CausalModel":
        """The same model whose queries see the keys `visible` only."""
        return replace(self, visible=visible)

    @property
    def dtype(self) -> torch.dtype:
        """The number format of its weights."""
        return next(self.network.parameters()).dtype

    @property
    def dtype_name(self) -> str:
        """The number format as records tell it."""
        return DTYPE_NAMES[self.dtype]

    @property
    def picks_logits(self) -> bool:
        """Whether its forward pass computes logits at chosen places only."""
        return "logits_to_keep" in inspect.signature(self.network.forward).parameters

    def windows_at_once(self, length: int, vocabulary_size: int, device: torch.device) -> int:
        """How many windows of `length` tokens to read side by side."""
        tokens, logits = (limit.get(device.type, limit["cuda"]) for limit in (TOKENS, LOGITS))
        if device.type == "cpu":
            tokens = min(tokens, SCANNED // self._state_bytes)
        places = len(self.columns) if self.columns is not None and self.picks_logits else length
        return max(1, min(tokens // length, logits // (places * vocabulary_size)))

    @property
    def _state_bytes(self) -> int:
        """Bytes of a token's states in one layer of a selective scan; 1 where there is none."""
        config = self.network.config.get_text_config(decoder=True)
        sizes = (getattr(config, name, None) for name in ("intermediate_size", "state_size"))
        width, states = (size if isinstance(size, int) else 0 for size in sizes)
        return max(1, 4 * width * states)

    @torch.no_grad()
    def token_losses(self, tokens_BT: Tensor) -> Tensor:
        """See `WindowModel.token_losses`; float32."""
        return self._predictions(tokens_BT)[0]

    @torch.no_grad()
    def token_predictions(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """See `GreedyModel.token_predictions`."""
        losses_BT, places_C, logits_BCV = self._predictions(tokens_BT)
        hits_BT = torch.zeros_like(losses_BT, dtype=torch.bool)
        hits_BT[:, places_C] = logits_BCV.argmax(-1) == tokens_BT[:, 1:][:, places_C]
        return losses_BT, hits_BT

    def _predictions(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses [B, T - 1], the places [C] that have one, and logits [B, C, V] at these."""
        rows, length = tokens_BT.shape[0], tokens_BT.shape[1] - 1
        wanted = np.arange(length) if self.columns is None else self.columns
        places_C = torch.from_numpy(wanted[wanted < length]).to(tokens_BT.device)
        logits_BCV = self._logits(tokens_BT[:, :-1], places_C)
        targets_BC = tokens_BT[:, 1:][:, places_C]
        losses_N = F.cross_entropy(
            logits_BCV.flatten(0, 1).float(), targets_BC.flatten(), reduction="none"
        )
        losses_BT = torch.full((rows, length), torch.nan, device=tokens_BT.device)
        losses_BT[:, places_C] = losses_N.view(rows, -1)
        return losses_BT, places_C, logits_BCV

    def _logits(self, inputs_BT: Tensor, places_C: Tensor) -> Tensor:
        """Logits [B, C, V] after the inputs at `places_C`."""
        if self.bos is not None:
            first_B1 = inputs_BT.new_full((len(inputs_BT), 1), self.bos)
            inputs_BT, places_C = torch.cat([first_B1, inputs_BT], dim=1), places_C + 1
        options = {} if self.visible is None else self.visible.inputs(self.network, inputs_BT)
        if self.picks_logits:
            options = {**options, "logits_to_keep": places_C}
        found: Tensor = self.network(input_ids=inputs_BT, use_cache=False, **options).logits
        return found if self.picks_logits else found[:, places_C]

    @torch.no_grad()
    def next_logits(self, tokens_BT: Tensor) -> Tensor:
        """Logits [B, 1, V] after the last token."""
        last = torch.tensor([tokens_BT.shape[1] - 1], device=tokens_BT.device)
        return self._logits(tokens_BT, last)

    @torch.no_grad()
    def attentions(self, tokens_BT: Tensor) -> dict[int, Tensor]:
        """Probabilities [B, H, T, S] of the layers that attend; queries and keys have the BOS too.

        As transformers returns them: of hybrid models for those layers only, in order.
        """
        if self.bos is not None:
            first_B1 = tokens_BT.new_full((len(tokens_BT), 1), self.bos)
            tokens_BT = torch.cat([first_B1, tokens_BT], dim=1)
        self.network.set_attn_implementation("eager")  # no other one keeps them
        options = {"logits_to_keep": 1} if self.picks_logits else {}
        given = self.network(
            input_ids=tokens_BT, use_cache=False, output_attentions=True, **options
        )
        found = getattr(given, "attentions", None) or ()
        config = self.network.config.get_text_config(decoder=True)
        kinds = getattr(config, "layer_types", getattr(config, "layers_block_type", None)) or ()
        attending = [n for n, kind in enumerate(kinds) if kind in ATTENDING]
        layers = attending if len(attending) == len(found) else range(len(found))
        return {n: each for n, each in zip(layers, found, strict=True) if each is not None}

    @torch.no_grad()
    def read(self, tokens_BT: Tensor, cache: Any) -> Any:
        """The cache of transformers after these tokens; None where the model has none.

        Args:
            cache: of the tokens before; None for none. It may be written into.
        """
        taken = inspect.signature(self.network.forward).parameters
        name = next((each for each in CACHES if each in taken), CACHES[0])
        options = {"logits_to_keep": 1} if self.picks_logits else {}
        given = self.network(input_ids=tokens_BT, use_cache=True, **{name: cache}, **options)
        found = (getattr(given, each, None) for each in CACHES)
        return next((each for each in found if each is not None), None)

    @staticmethod
    def drop_newest(cache: Any, tokens: int) -> None:
        """Drops the newest `tokens` from a cache of keys; a recurrent state has no such thing."""
        layers = getattr(cache, "layers", None) or []
        if layers and all(type(layer).__name__ == "DynamicLayer" for layer in layers):
            cache.crop(-tokens)

    def one_pass_difference(self, tokens_T: Tensor) -> float:
        """The most that a loss changes, in nats, when a window is cut to its context.

        Compares a window of T tokens with its first tokens alone, in two lengths.
        """
        length = len(tokens_T) - 1
        contexts = np.unique([max(1, length // 4), max(1, length // 2)])
        reader = self.at(contexts - 1)
        whole_C = reader.token_losses(tokens_T[None])[0, contexts - 1]
        alone = [reader.token_losses(tokens_T[None, : c + 1])[0, c - 1] for c in contexts.tolist()]
        return float((torch.stack(alone) - whole_C).abs().max())

    def check_one_pass(self, tokens_T: Tensor, reference: str) -> float:
        """Refuses (UserError) a model of which one window does not give all contexts."""
        try:
            difference = self.one_pass_difference(tokens_T)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
            first = next(iter(str(error).strip().splitlines()), "")[:200]
            raise UserError(
                f"{reference}: transformers cannot run it ({type(error).__name__}: {first})",
                "check its config.json",
            ) from error
        if math.isnan(difference):
            raise UserError(
                f"{reference}: its losses are no numbers (NaN)",
                "its weights are damaged, get them again",
            )
        if not difference <= TOLERANCE[self.dtype]:
            raise UserError(
                f"{reference}: a loss changes by {difference:.2g} nats with what comes after the "
                "token, so one window does not give all contexts",
                "give a model that only sees what comes before",
            )
        return difference

    @torch.no_grad()
    def check_visible_keys(self, tokens_T: Tensor, reference: str) -> None:
        """Refuses (UserError) a model in which a mask does not decide what queries see.

        With a mask of all keys its losses must be those without one, and a query that sees itself
        alone must know nothing of the tokens before, which every layer could tell it.
        """
        others_T = torch.where(tokens_T == 0, 1, 0)
        others_T[-1] = tokens_T[-1]
        usual_BT = self.seeing(None).token_losses(tokens_T[None])
        try:
            every_BT = self.seeing(VisibleKeys(len(tokens_T))).token_losses(tokens_T[None])
            alone = self.seeing(VisibleKeys(1)).next_logits(torch.stack([tokens_T, others_T]))
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
            first = next(iter(str(error).splitlines()), "")[:100]
            raise _no_attention_length(reference, f"it takes no mask ({first})") from error
        scored_BT = ~usual_BT.isnan()
        if not (every_BT - usual_BT)[scored_BT].abs().max() <= TOLERANCE[self.dtype]:
            raise _no_attention_length(reference, "a mask of all keys changes its losses")
        if not (alone[0] - alone[1]).abs().max() <= LEAK:
            raise _no_attention_length(reference, "queries see tokens that the mask hides")

    @torch.inference_mode()
    def generate(
        self,
        ids: NDArray[np.int64],
        tokens: int,
        top_k: int | None,
        temperature: float,
        seed: int,
    ) -> list[int]:
        """The ids of `tokens` tokens after `ids`, drawn by transformers' own generation.

        Args:
            top_k: the likeliest tokens that are drawn from; None for all, 1 to take the likeliest.
        """
        first = [] if self.bos is None else [self.bos]
        device = next(self.network.parameters()).device
        prompt_BT = torch.tensor([[*first, *ids.tolist()]], device=device)
        torch.manual_seed(seed)
        found_BT: Tensor = self.network.generate(
            prompt_BT,
            attention_mask=torch.ones_like(prompt_BT),
            do_sample=True,
            top_k=top_k or 0,
            top_p=1.0,
            temperature=temperature,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
        )
        return found_BT[0, prompt_BT.shape[1] :].tolist()

    @torch.inference_mode()
    def forced_logits(self, ids: NDArray[np.int64], continuation: Sequence[int]) -> Tensor:
        """Logits [N, V] of the tokens of `continuation` after `ids`, in one pass; float32."""
        device = next(self.network.parameters()).device
        tokens_BT = torch.tensor([[*ids.tolist(), *continuation][:-1]], device=device)
        places_C = torch.arange(len(ids) - 1, tokens_BT.shape[1], device=device)
        return self._logits(tokens_BT, places_C)[0].float()

    def redrawn(
        self, logits_NV: Tensor, top_k: int | None, temperature: float, seed: int
    ) -> list[int]:
        """The tokens that `generate` draws from these logits, none of which ends the text."""
        ends = self.network.generation_config.eos_token_id
        if ends is not None:
            logits_NV = logits_NV.clone()
            logits_NV[:, ends] = -torch.inf
        torch.manual_seed(seed)
        drawn = []
        for logits_V in logits_NV / temperature:
            if top_k is not None:
                least = logits_V.topk(min(top_k, len(logits_V))).values[-1]
                logits_V = logits_V.masked_fill(logits_V < least, -torch.inf)
            drawn.append(int(torch.multinomial(logits_V.softmax(-1)[None], 1)))
        return drawn


def _no_attention_length(reference: str, why: str) -> UserError:
    return UserError(
        f"--attention-length: is not to be chosen of {reference}: {why}", "drop the option"
    )

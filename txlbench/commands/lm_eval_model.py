"""Models of this suite in lm-evaluation-harness, as `--model txlbench`.

`python -m txlbench.commands.lm_eval_model` is the command line of lm-eval with that model known to
it; in Python importing this module does the same for `lm_eval.simple_evaluate`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.commands.generate import decoding_span
from txlbench.commands.model_ref import resolve
from txlbench.commands.perplexity import ProtocolReader, default_window, rolling_loss
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation.generation import Sampling, generate
from txlbench.machine import own_device
from txlbench.models.interface import LanguageModel

try:
    import lm_eval.models  # noqa: F401  # registers the others, which lm-eval does where none is
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
except ImportError:
    if __name__ != "__main__":
        raise
    print("Error: lm-eval is not installed; pip install 'txlbench[lm-eval]'", file=sys.stderr)
    sys.exit(2)

LM_EVAL_DEVICE = "cuda:0"
LONGEST_ANSWER = 256
"""Tokens generated at most where a task does not say, as in lm-eval."""


@register_model("txlbench")
class LmEvalModel(TemplateLM):  # type: ignore[misc]
    """Any MODEL of this suite that reads text.

    Args:
        model: as on the command line.
        max_length: tokens read at once; by default the model's positions, or the reach that it was
            trained with.
        batch_size: windows read side by side; None or auto for what fits.

    Raises:
        UserError: if there is no such model, or it reads no text.
    """

    def __init__(
        self,
        model: str,
        max_length: int | None = None,
        device: str | None = None,
        batch_size: int | str | None = None,
        checkpoint: str = "best",
        **_: Any,
    ) -> None:
        super().__init__()
        ref = resolve(model, checkpoint)
        self._tokenizer = ref.tokenizer()
        # What lm-eval's command line says by default, it takes for a wish where there is no GPU.
        is_default = device == LM_EVAL_DEVICE and not torch.cuda.is_available()
        self._device = own_device("auto" if is_default else device or "auto")
        self.max_length = int(max_length or default_window(ref))
        at_once = None if batch_size in (None, "auto") else int(str(batch_size))
        self._reader = ProtocolReader(ref.load(self._device), self._device, at_once)

    @property
    def eot_token_id(self) -> int:
        """The id that stands before a text."""
        return self._tokenizer.prefix

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """The ids of a text, after BOS where the tokenizer adds one."""
        ids: list[int] = self._tokenizer.encode(string)[0].tolist() if string else []
        bos = self._tokenizer.bos
        return ids if bos is None or add_special_tokens is False else [bos, *ids]

    def loglikelihood_rolling(
        self,
        requests: Sequence[Any],
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[float]:
        """The log-likelihood of each whole text, as `eval --protocol lm-eval` has it."""
        return [self._rolling(request.args[0]) for request in requests]

    def _rolling(self, text: str) -> float:
        if not text:
            return 0.0
        ids, _ = self._tokenizer.encode(text)
        return -rolling_loss(self._reader, ids, self._tokenizer, self.max_length).nats

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        return [self._continuation(context, asked) for _, context, asked in requests]

    def _continuation(self, context: list[int], asked: list[int]) -> tuple[float, bool]:
        """The log-likelihood of `asked` after `context`, and whether greedy decoding gives it."""
        tokens_T = torch.tensor([*context, *asked][-(self.max_length + 1) :], device=self._device)
        log_probs_TV = self._log_probs(tokens_T[:-1])[-len(asked) :]
        targets_T = tokens_T[-len(log_probs_TV) :]
        found_T = log_probs_TV.gather(1, targets_T[:, None]).double()
        return float(found_T.sum()), bool((log_probs_TV.argmax(1) == targets_T).all())

    @torch.no_grad()
    def _log_probs(self, tokens_T: Tensor) -> Tensor:
        """Log-probabilities [T, V] of the token after each of a window."""
        model = self._reader.loaded.model
        if isinstance(model, LanguageModel):
            state = model.initial_state(1, AttentionSpan(mem_len=0))
            hidden_BTD, _ = model.forward(tokens_T[None], state)
            return model.log_probs(hidden_BTD[0]).float()
        logits_BTV: Tensor = model.network(input_ids=tokens_T[None], use_cache=False).logits
        return logits_BTV[0].float().log_softmax(1)

    def generate_until(
        self,
        requests: Sequence[Any],
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[str]:
        """A continuation of each context up to one of its stops, drawn greedily unless asked."""
        return [self._answer(*request.args) for request in requests]

    def _answer(self, context: str, options: dict[str, Any]) -> str:
        until = options.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        most = int(options.get("max_gen_toks", LONGEST_ANSWER))
        sampling = Sampling(top_k=1)
        if options.get("do_sample"):
            sampling = Sampling(options.get("top_k"), float(options.get("temperature", 1.0)))
        prompt = np.array(self.tok_encode(context) or [self.eot_token_id], dtype=np.int64)
        added: list[int] = []
        text = ""
        for token in islice(self._drawn(prompt, sampling), most):
            added.append(token)
            text = self._tokenizer.decode(added)
            if any(stop in text for stop in stops if stop):
                break
        return min((text.split(stop)[0] for stop in stops if stop), key=len, default=text)

    def _drawn(self, prompt: NDArray[np.int64], sampling: Sampling) -> Iterator[int]:
        """Tokens after the prompt, without end."""
        loaded, generator = self._reader.loaded, torch.Generator(self._device)
        generator.manual_seed(0)
        if isinstance(loaded.model, LanguageModel):
            span, segment = decoding_span(loaded)
            if span is not None and not span.same_length:
                span = replace(span, mem_len=max(span.mem_len, self.max_length))
            drawn = generate(loaded.model, prompt[None], span, segment, sampling, [generator])
            yield from (token for (token,) in drawn)
        tokens_T = torch.from_numpy(prompt).to(self._device)
        while True:
            last_BV = self._log_probs(tokens_T[-self.max_length :])[-1:]
            tokens_T = torch.cat([tokens_T, sampling.draw(last_BV, [generator])[0]])
            yield int(tokens_T[-1])


def main() -> None:
    """The command line of lm-eval; wrong input of ours is one line and exit status 2."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""`generate`: a model goes on with the user's text."""

import math
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from txlbench.commands.load_model import LoadedModel, load_model
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import Level
from txlbench.data.vocabulary import EOS, UNKNOWN, VOCABULARIES, ByteVocabulary, Vocabulary
from txlbench.errors import UserError
from txlbench.evaluation.generation import Look, Sampling, generate
from txlbench.machine import own_device


@dataclass(frozen=True)
class Wish:
    """What the user asked `generate` for.

    Attributes:
        prompt: the text to go on with; `prompt_file` has it otherwise.
        tokens: symbols to add.
        mem_len: cached states; None as trained, at least a segment.
        level: what a token is; None to tell from the run or its vocabulary.
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
class Continuation:
    """What came of it.

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


def continue_text(wish: Wish) -> Continuation:
    """Draws `wish.tokens` symbols after the prompt.

    Raises:
        UserError: if the prompt is empty or not of the model's symbols.
    """
    prompt = _prompt(wish)
    if math.isnan(wish.temperature):
        raise UserError("--temperature: not a number", "1 leaves probabilities as they are")
    device = own_device(wish.device)
    loaded = load_model(wish.model, device, wish.checkpoint)
    vocabulary = vocabulary_of(loaded, wish.level)
    ids = vocabulary.encode(prompt)
    if not len(ids):
        raise UserError("the prompt has no symbol", "give a text to go on with")
    look = _look(loaded, wish.mem_len)
    sampling, generator = Sampling(wish.top_k, wish.temperature), torch.Generator(device)
    begin = time.perf_counter()
    drawn = generate(loaded.model, ids, look, sampling, generator.manual_seed(wish.seed))
    added = list(islice(drawn, wish.tokens))
    seconds = time.perf_counter() - begin
    mem_len = None if look.span is None else look.span.mem_len
    return Continuation(vocabulary.decode([*ids, *added]), added, mem_len, seconds)


def _prompt(wish: Wish) -> str:
    if (wish.prompt is None) == (wish.prompt_file is None):
        raise UserError("--prompt and --prompt-file: one of them is needed", "give one")
    if wish.prompt is not None:
        return wish.prompt
    assert wish.prompt_file is not None
    try:
        return wish.prompt_file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{wish.prompt_file}: {error.strerror}", "give a text file") from error


def vocabulary_of(loaded: LoadedModel, level: Level | None = None) -> Vocabulary:
    """The model's own symbols, by which text goes in and out.

    Args:
        level: what a token is, where it cannot be told otherwise.

    Raises:
        UserError: if the model brought no vocabulary along.
    """
    if loaded.tokens is None:
        raise UserError(
            f"{loaded.reference}: has weights but no vocabulary",
            "add the source's vocabulary file, or import it with one",
        )
    if level is None:
        level = loaded.run.corpus.resolved_level if loaded.run else _likely_level(loaded.tokens)
    return VOCABULARIES[level](loaded.tokens)


def _likely_level(tokens: tuple[str, ...]) -> Level:
    """Bytes if they are the 256 values, characters if all are single ones, else words."""
    if tokens == ByteVocabulary.full().symbols:
        return "byte"
    single = all(len(token) == 1 for token in tokens if token not in (EOS, UNKNOWN))
    return "char" if single else "word"


def _look(loaded: LoadedModel, mem_len: int | None) -> Look:
    """Memory where it is coherent: as asked, as trained, or a segment where it had none."""
    look_back = loaded.look_back
    if mem_len is not None and loaded.config.is_recurrent:
        raise UserError(
            f"--mem-len: the state of {loaded.config.kind} reaches back without limit",
            "drop the option",
        )
    if not loaded.config.has_coherent_memory:
        if mem_len is not None:
            raise UserError(
                f"--mem-len: positions of {loaded.config.name} restart at every segment",
                "drop the option: the newest tokens are read anew for each",
            )
        return Look(None, look_back.tgt_len)
    if mem_len is None:
        mem_len = look_back.mem_len or look_back.tgt_len
    same_length = look_back.same_length and mem_len > 0
    return Look(
        AttentionSpan(mem_len=mem_len, clamp_len=look_back.clamp_len, same_length=same_length),
        look_back.tgt_len,
    )

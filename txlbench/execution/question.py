"""What the user asks of `eval`."""

from dataclasses import dataclass
from pathlib import Path

from txlbench.config.catalogue import Level
from txlbench.config.section import Split


@dataclass(frozen=True)
class Question:
    """What the user asked `eval` for; None stands for the model's own setting.

    Attributes:
        corpus: a catalogue's name or a text; the corpus it was trained on if neither this nor
            `tokens` is given.
        level: what a token of a text is, where `corpus` is one.
        tokens: a 1-D .npy file of token ids; all but the first are scored.
        attention_lengths: numbers of keys a query sees; empty for one pass with `mem_len`.
        losses: where each target's loss goes, as .npz.
    """

    model: str
    corpus: str | None = None
    level: Level | None = None
    tokens: Path | None = None
    split: Split = "test"
    batch_size: int = 10
    tgt_len: int | None = None
    mem_len: int | None = None
    attention_lengths: tuple[int, ...] = ()
    clamp_len: int | None = None
    same_length: bool | None = None
    exact: bool = False
    zero_memory: bool = False
    losses: Path | None = None
    device: str = "auto"
    checkpoint: str = "best"

"""The configuration of a model that was imported: it was not trained here."""

from pydantic import Field

from txlbench.config.model import ModelConfig
from txlbench.config.section import Section


class LookBack(Section):
    """How a source's model looks back in evaluation, where the source says so.

    Attributes:
        tgt_len: tokens a segment.
        mem_len: cached states.
        clamp_len: distances beyond it count as clamp_len.
        same_length: every query sees exactly mem_len keys, itself included.
    """

    tgt_len: int = Field(64, ge=1)
    mem_len: int = Field(0, ge=0)
    clamp_len: int | None = Field(None, ge=0)
    same_length: bool = False


class ImportedConfig(Section):
    """What `config.yaml` of an imported run holds; corpus and training are null.

    Attributes:
        source: where it came from, as given to `import`.
        vocabulary_size: token types, as no corpus tells them.
        evaluate: how the source evaluates.
    """

    source: str
    corpus: None = None
    train: None = None
    model: ModelConfig
    vocabulary_size: int = Field(ge=1)
    evaluate: LookBack = LookBack()

"""The `evaluate` section: how a trained model is measured."""

from pydantic import Field, field_validator

from txlbench.config.section import Section, Split


class EvaluateConfig(Section):
    """How a trained model is measured; none of it changes what is trained.

    Attributes:
        split: the split that is reported; lengths are chosen on valid.
        tgt_len: tokens a segment in streaming evaluation; default as trained.
        mem_len: attention length where attention_lengths is empty; default as trained.
        batch_size: streams evaluated at once.
        attention_lengths: numbers of keys a query sees, itself included, that are tried.
        clamp_len: distances beyond it count as clamp_len in the sweep; default the model's.
        tokens: targets scored, in blocks spread evenly over the split; null for all.
        stride: tokens by which a window moves on; default max(1, length // 4); 1 is the paper's
            sliding window.
        tolerance: nats within which a shorter attention length counts as equal to the best.
    """

    split: Split = "test"
    tgt_len: int | None = Field(None, ge=1)
    mem_len: int | None = Field(None, ge=1)
    batch_size: int = Field(10, ge=1)
    attention_lengths: tuple[int, ...] = Field((), strict=False)
    clamp_len: int | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=1)
    stride: int | None = Field(None, ge=1)
    tolerance: float = Field(5e-4, ge=0)

    @field_validator("attention_lengths")
    @classmethod
    def _positive(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 1 for length in lengths):
            raise ValueError(f"attention lengths {list(lengths)} must be at least 1")
        return tuple(sorted(set(lengths)))

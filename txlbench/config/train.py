"""The `train` section: segments, memory, objective and optimisation."""

from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from txlbench.config.base import Section

Precision = Literal["auto", "fp32", "tf32", "bf16"]


class TrainConfig(Section):
    """Segments, memory, objective and optimisation (official flags; paper section 3.2).

    Attributes:
        tgt_len: tokens predicted in a segment.
        mem_len: cached states of earlier tokens; default tgt_len; 0 without recurrence.
        recurrence: memory is carried from segment to segment.
        loss: full, or half: only positions i >= tgt_len // 2, segments overlapping accordingly.
        batch_size: streams trained on at once.
        batch_chunk: parts into which a batch is cut to save memory. The step is the same without
            dropout; with it, each part draws masks of its own, so that weights differ as between
            two seeds of dropout.
        max_step: optimiser steps.
        lr: Adam's learning rate after warm-up; it falls along a cosine to zero at max_step.
        warmup_step: steps of linear warm-up.
        clip: largest global norm of the gradient.
        log_interval: steps between lines of the training loss.
        eval_interval: steps between validations.
        eval_tokens: targets of each validation, spread evenly over valid; null for all.
        precision: fp32, tf32 (fp32, its products of 10 bits on a CUDA device that has them), bf16
            (autocast), or auto: bf16 where the device is fast at it.
        compile: the forward pass of training steps is compiled by torch.compile at the first
            step; memory has its full size from then on. Dropout masks are PyTorch's then.
        average_from: share of the steps after which weights are averaged, and the average is
            what is validated and kept; null for no averaging.
        aux_layers: Al-Rfou's auxiliary loss of intermediate layers: layer k of n predicts the
            targets too, until k / 2n of the training is done.
        aux_positions: with half loss, the other positions are trained on too, as an auxiliary
            loss that is not reported (Al-Rfou's "multiple positions").
        memory_reset: probability with which each stream forgets at a step, independently, so
            that short contexts are met in training; 0 without recurrence.
        random_mem_len: at each step queries see no, a quarter, half, three quarters or all of the
            memory, so that models meet shorter ones too.
        memory_reset_from: share of the steps after which streams forget.
        checkpoint_interval: steps between checkpoints, beside that of each validation; null for
            none. Changes no number.
        checkpoint_minutes: minutes between checkpoints, likewise; null for none. Changes no number.
        devices: processes that train one run together, one a CUDA device or on CPU cores; each has
            its share of the rows of every part of the batch. Changes last digits only, but for
            dropout masks that PyTorch draws (on CUDA devices, with compile, kind hf), which then
            are others. A run may go on with another number.
    """

    UNHASHED = frozenset({"log_interval", "checkpoint_interval", "checkpoint_minutes", "devices"})
    ADDED = MappingProxyType(
        {
            "average_from": None,
            "aux_layers": False,
            "aux_positions": False,
            "memory_reset": 0.0,
            "memory_reset_from": 0.5,
            "compile": False,
            "random_mem_len": False,
        }
    )

    tgt_len: int = Field(64, ge=1)
    mem_len: int | None = Field(None, ge=0)
    recurrence: bool = True
    loss: Literal["full", "half"] = "full"
    batch_size: int = Field(16, ge=1)
    batch_chunk: int = Field(1, ge=1)
    max_step: int = Field(1000, ge=1)
    lr: float = Field(2.5e-4, gt=0)
    warmup_step: int = Field(0, ge=0)
    clip: float = Field(0.25, gt=0)
    log_interval: int = Field(20, ge=1)
    eval_interval: int = Field(200, ge=1)
    eval_tokens: int | None = Field(None, ge=1)
    precision: Precision = "auto"
    compile: bool = False
    average_from: float | None = Field(None, ge=0, lt=1)
    aux_layers: bool = False
    aux_positions: bool = False
    random_mem_len: bool = False
    memory_reset: float = Field(0.0, ge=0, lt=1)
    memory_reset_from: float = Field(0.5, ge=0, lt=1)
    checkpoint_interval: int | None = Field(None, ge=1)
    checkpoint_minutes: float | None = Field(10.0, gt=0)
    devices: int = Field(1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _resolve_recurrence(cls, given: Any) -> Any:
        """No recurrence means no memory and no memory no recurrence, before anything else."""
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        if filled.get("mem_len") is None:
            filled["mem_len"] = filled.get("tgt_len", 64)
        if type(filled["mem_len"]) is not int or filled["mem_len"] < 0:
            return filled  # refused below
        if filled.get("recurrence") is False or filled["mem_len"] == 0:
            filled["recurrence"], filled["mem_len"] = False, 0
        return filled

    @model_validator(mode="after")
    def _resolve_resets(self) -> Self:
        """Where there is no memory nothing is forgotten, and then it does not matter when."""
        # Frozen for users; a validator may still complete what it validates.
        if not self.recurrence:
            object.__setattr__(self, "memory_reset", 0.0)
            object.__setattr__(self, "random_mem_len", False)
        if not self.memory_reset:
            object.__setattr__(self, "memory_reset_from", 0.5)
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.batch_size % self.batch_chunk:
            raise ValueError(
                f"batch_chunk {self.batch_chunk} does not divide batch_size {self.batch_size}"
            )
        check_divided(self, self.devices, f"devices {self.devices}")
        if self.warmup_step > self.max_step:
            raise ValueError(
                f"warmup_step {self.warmup_step} is beyond max_step {self.max_step}; "
                "the learning rate would never be reached"
            )
        if self.aux_positions and self.loss == "full":
            raise ValueError("aux_positions goes with loss half: full loss trains on all positions")
        if self.random_mem_len and self.compile:
            raise ValueError("compile: random_mem_len changes shapes; drop one of them")
        if self.aux_layers and self.compile:
            raise ValueError("compile: aux_layers change while training; drop one of them")
        return self

    @property
    def memory(self) -> int:
        """mem_len as resolved."""
        assert self.mem_len is not None
        return self.mem_len

    @property
    def stride(self) -> int:
        """Tokens by which segments move on: those that each segment trains on."""
        return self.tgt_len - self.tgt_len // 2 if self.loss == "half" else self.tgt_len


def check_divided(train: TrainConfig, processes: int, what: str) -> None:
    """Refuses (ValueError) a number of processes that the rows of a batch cannot be shared by.

    Args:
        what: gives that number, as the message names it.
    """
    rows = train.batch_size // train.batch_chunk
    if rows % processes:
        raise ValueError(
            f"{what} does not divide batch_size / batch_chunk, {train.batch_size} / "
            f"{train.batch_chunk} = {rows} rows"
        )

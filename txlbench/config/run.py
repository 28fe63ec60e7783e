"""The configuration of one run: what is trained, how, and how it is evaluated.

Keys keep the names of the paper and of its released code. `loading` turns validation errors into
one line with file, line number and remedy.
"""

from typing import Any, Self

from pydantic import Field, model_validator

from txlbench.config.corpus import CorpusConfig
from txlbench.config.evaluate import EvaluateConfig
from txlbench.config.model import ModelConfig
from txlbench.config.section import Section
from txlbench.config.train import TrainConfig


class RunConfig(Section):
    """One trained model: a row of an experiment with a seed, everything resolved."""

    corpus: CorpusConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    seed: int = Field(1, ge=0, lt=2**31)

    @model_validator(mode="before")
    @classmethod
    def _corpus_by_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("corpus"), str):
            return {**given, "corpus": {"name": given["corpus"]}}
        return given

    @model_validator(mode="after")
    def _resolve_max_distance(self) -> Self:
        """Sizes learned tables by what training meets, where nothing else was asked for."""
        largest = {
            "shaw": self.train.tgt_len - 1 + self.train.memory,
            "al-rfou": self.train.tgt_len - 1,
        }.get(self.model.encoding)
        if largest is not None and self.model.max_distance is None:
            # Frozen for users; a validator may still complete what it validates.
            object.__setattr__(
                self, "model", self.model.model_copy(update={"max_distance": largest})
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        model, train = self.model, self.train
        if model.same_length and not train.recurrence:
            raise ValueError(
                "model.same_length sees exactly mem_len keys, but there is no memory; "
                "set train.mem_len or drop same_length"
            )
        if train.compile and model.is_recurrent:
            raise ValueError(f"train.compile: {model.kind} reads token by token; drop it")
        if model.encoding == "al-rfou" and train.tgt_len - 1 > (model.max_distance or 0):
            raise ValueError(
                f"model.max_distance {model.max_distance} is too small for al-rfou at "
                f"train.tgt_len {train.tgt_len}; leave it out"
            )
        if model.encoding == "al-rfou" and self.evaluate.tgt_len and train.recurrence:
            positions = (model.max_distance or 0) + 1
            if self.evaluate.tgt_len > positions:
                raise ValueError(
                    f"evaluate.tgt_len {self.evaluate.tgt_len} is too long for al-rfou, which "
                    f"learns {positions} positions; use at most {positions}"
                )
        if self.evaluate.stride and self.evaluate.attention_lengths:
            shortest = self.evaluate.attention_lengths[0]
            if not train.recurrence and self.evaluate.stride > shortest:
                raise ValueError(
                    f"evaluate.stride {self.evaluate.stride} is longer than the shortest "
                    f"attention length {shortest}; tokens would be left out"
                )
        return self

"""The configuration of one run: its corpus, how it is trained and how it is evaluated.

Keys keep the names of the paper and of its released code. `loading` turns validation errors into
one line with file, line number and remedy.
"""

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from txlbench.config.base import RopeKind, Section, Split
from txlbench.config.catalogue import CORPORA, ENCODINGS, UNITS, Level
from txlbench.config.loading import Document, validate
from txlbench.config.model import ModelConfig
from txlbench.config.plugins import naming_plugin, resolved_source, unknown
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError, suggestion


class CorpusConfig(Section):
    """A corpus of the catalogue by name, or any text by `path`.

    Attributes:
        name: the catalogue's name, or any name for one's own text; default its path's stem. The
            path of a text in its place is as good as `path`.
        path: a text, a directory of *.txt files, or a CSV or TSV file, relative to the working
            directory; alone it is split 90/5/5.
        valid, test: texts of the other splits; both or neither.
        column: the column of a CSV or TSV file that holds the texts, a row each.
        level: what a token is; a corpus of the catalogue knows its own.
        plugin: SHA-256 of the plug-in's source that the corpus is from; filled in.
    """

    UNHASHED = frozenset({"path", "valid", "test", "column"})
    ADDED = MappingProxyType({"plugin": None})

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    path: str | None = None
    valid: str | None = None
    test: str | None = None
    column: str | None = None
    level: Level | None = None
    plugin: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_and_path(cls, given: Any) -> Any:
        """Completes a name by its path, and a path by its name."""
        if not isinstance(given, dict):
            return given
        name, path = given.get("name"), given.get("path")
        if path is None and isinstance(name, str) and name not in CORPORA and is_path(name):
            path, name = name, None
        if isinstance(path, str) and name is None:
            return {**given, "name": _name_of(Path(path)), "path": path}
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is None:
            if self.valid or self.test or self.column:
                raise ValueError("valid, test and column need a path to the training text")
            if self.name not in CORPORA:
                remedy = suggestion(self.name, CORPORA)
                raise unknown(f"corpus '{self.name}'", f"{remedy}; or give its path")
            source = resolved_source(f"corpus {self.name}", CORPORA[self.name].source, self.plugin)
            object.__setattr__(self, "plugin", source)
            known = CORPORA[self.name].level
            if self.level not in (None, known):
                raise ValueError(f"level of {self.name} is {known}, not {self.level}")
        elif self.name in CORPORA:
            raise ValueError(f"name '{self.name}' belongs to the catalogue; choose another name")
        elif (self.valid is None) != (self.test is None):
            raise ValueError("give both valid and test, or neither (then the text is split 90/5/5)")
        return self

    @property
    def resolved_level(self) -> Level:
        """The level given, else the catalogue's, else bytes."""
        return self.level or (CORPORA[self.name].level if self.path is None else "byte")

    @property
    def unit(self) -> str:
        """The unit in which losses are shown: bpc or ppl."""
        return UNITS[self.resolved_level]

    @property
    def split_rule(self) -> str:
        """How the splits come about: part of a run's identity."""
        if self.path is None:
            return CORPORA[self.name].split_rule
        return "90/5/5" if self.valid is None else "files"


def corpus_named(name: str, level: Level | None = None) -> CorpusConfig:
    """Returns the `corpus` section that `name` stands for.

    Raises:
        UserError: if `name` is neither a corpus nor a path of a text.
    """
    if name not in CORPORA and not is_path(name):
        raise UserError(f"{name}: neither a corpus nor a file", suggestion(name, CORPORA))
    content = {"name": name, "level": level}
    return validate(CorpusConfig, content, Document(name, content))


def is_path(name: str) -> bool:
    """Whether something lies at the path `name`."""
    try:
        return Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, an unknown ~user
        return False


def _name_of(path: Path) -> str:
    """Returns a corpus name for a text: its stem, without what a corpus name may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "text"
    return f"{name}-text" if name in CORPORA else name


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
        rope_scaling: of encoding rope at longer attention lengths than trained: pi (position
            interpolation), ntk or yarn; null for positions as trained.
        rope_factor: its factor there, at least 1; default attention length over keys met.
        sinks: of the keys of each attention length, those that are the first of the stream;
            default as trained.
        tolerance: nats within which a shorter attention length counts as equal to the best.
    """

    ADDED = MappingProxyType({"rope_scaling": None, "rope_factor": None, "sinks": None})

    split: Split = "test"
    tgt_len: int | None = Field(None, ge=1)
    mem_len: int | None = Field(None, ge=1)
    batch_size: int = Field(10, ge=1)
    attention_lengths: tuple[int, ...] = Field((), strict=False)
    clamp_len: int | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=1)
    stride: int | None = Field(None, ge=1)
    sinks: int | None = Field(None, ge=0)
    rope_scaling: RopeKind | None = None
    rope_factor: float | None = Field(None, ge=1)
    tolerance: float = Field(5e-4, ge=0)

    @field_validator("attention_lengths")
    @classmethod
    def _positive(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= length < 2**31 for length in lengths):
            raise ValueError(f"attention lengths {list(lengths)} must be at least 1 and below 2^31")
        return tuple(sorted(set(lengths)))


class ImportedConfig(Section):
    """What `config.yaml` of an imported run holds; corpus and training are null.

    Segments and memory have the names that they have in `TrainConfig`, as the source evaluates.

    Attributes:
        source: where it came from, as given to `import`.
        model: as built; clamp_len and same_length as the source evaluates.
        vocabulary_size: token types, as no corpus tells them.
        evaluate: how the source evaluates; tgt_len and mem_len where it says so.
    """

    source: str
    corpus: None = None
    train: None = None
    model: ModelConfig
    vocabulary_size: int = Field(ge=1)
    evaluate: EvaluateConfig = EvaluateConfig()
    recurrence: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _read_older_files(cls, given: Any) -> Any:
        """Files of earlier versions have the span of attention under `evaluate` alone."""
        if not (isinstance(given, dict) and isinstance(evaluate := given.get("evaluate"), dict)):
            return given
        span = {key: evaluate[key] for key in ("clamp_len", "same_length") if key in evaluate}
        if "same_length" not in span or not isinstance(given.get("model"), dict):
            return given
        rest = {key: value for key, value in evaluate.items() if key not in span}
        if rest.get("mem_len") == 0:
            del rest["mem_len"]
        return {**given, "model": {**given["model"], **span}, "evaluate": rest}

    @property
    def tgt_len(self) -> int:
        """Tokens a segment."""
        return self.evaluate.tgt_len or 64

    @property
    def stride(self) -> int:
        """Tokens by which segments move on."""
        return self.tgt_len

    @property
    def memory(self) -> int:
        """Cached states of earlier tokens."""
        return self.evaluate.mem_len or 0


class RunConfig(Section):
    """One trained model: a row of an experiment with a seed, everything resolved.

    Attributes:
        seed: random seed of weights, dropout and data order.
    """

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
    def _resolve_memory(self) -> Self:
        """No memory means no recurrence, and without recurrence no kind of memory differs."""
        if self.model.memory == "none" and self.train.recurrence:
            alone = self.train.model_dump() | {"recurrence": False}
            object.__setattr__(self, "train", TrainConfig.model_validate(alone))
        if not self.train.recurrence:
            usual = {key: ModelConfig.ADDED[key] for key in ("memory", "compress_rate", "sinks")}
            object.__setattr__(self, "model", self.model.model_copy(update=usual))
        return self

    @model_validator(mode="after")
    def _resolve_max_distance(self) -> Self:
        """Sizes learned tables by what training meets, where nothing else was asked for."""
        entry, train = ENCODINGS[self.model.encoding], self.train
        if entry.default_max_distance is not None and self.model.max_distance is None:
            with naming_plugin(f"encoding {self.model.encoding}", entry.source):
                largest = entry.default_max_distance(train.tgt_len, train.memory)
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
        self._check_memory()
        if train.compile and model.is_recurrent:
            raise ValueError(f"train.compile: {model.kind} has a recurrent state; drop it")
        if model.kind == "hf":
            self._check_architecture()
        positions = model.learned_positions
        if positions is not None and train.tgt_len > positions:
            if model.kind == "hf":
                raise ValueError(
                    f"train.tgt_len {train.tgt_len}: {model.name} has {positions} positions; "
                    "lower it, or raise their number in model.config"
                )
            raise ValueError(
                f"model.max_distance {model.max_distance} is too small for {model.encoding} at "
                f"train.tgt_len {train.tgt_len}; leave it out"
            )
        if positions is not None and train.recurrence and (self.evaluate.tgt_len or 0) > positions:
            raise ValueError(
                f"evaluate.tgt_len {self.evaluate.tgt_len} is too long for {model.encoding}, which "
                f"learns {positions} positions; use at most {positions}"
            )
        if self.evaluate.rope_scaling and model.name != "rope":
            raise ValueError(
                f"evaluate.rope_scaling goes with encoding rope, not {model.name}; drop it"
            )
        if self.evaluate.rope_factor is not None and self.evaluate.rope_scaling is None:
            raise ValueError("evaluate.rope_factor goes with evaluate.rope_scaling; set that too")
        if self.evaluate.stride and self.evaluate.attention_lengths:
            shortest = self.evaluate.attention_lengths[0]
            if not train.recurrence and self.evaluate.stride > shortest:
                raise ValueError(
                    f"evaluate.stride {self.evaluate.stride} is longer than the shortest "
                    f"attention length {shortest}; tokens would be left out"
                )
        return self

    def _check_memory(self) -> None:
        """Refuses settings of training that the kind of memory cannot follow."""
        model, train = self.model, self.train
        for key in ("memory_reset", "random_mem_len"):
            if model.memory in ("compressive", "sinks") and getattr(train, key):
                raise ValueError(f"train.{key}: not with memory {model.memory}; drop it")
        if model.span_sinks and model.span_sinks >= train.memory:
            raise ValueError(
                f"model.sinks {model.sinks}: train.mem_len {train.memory} has no room for others"
            )
        if train.random_mem_len and model.kind != "transformer":
            raise ValueError(f"train.random_mem_len: goes with a transformer, not {model.name}")
        if model.memory == "compressive" and train.compile:
            raise ValueError("train.compile: compressive memory changes its shape; drop it")
        asked = self.evaluate.sinks
        if asked and (model.kind != "transformer" or not train.recurrence):
            raise ValueError("evaluate.sinks: goes with the memory of a transformer; drop it")
        if asked and model.memory in ("shift", "compressive"):
            raise ValueError(f"evaluate.sinks: not with memory {model.memory}; drop it")

    def _check_architecture(self) -> None:
        """Refuses settings of training that an architecture of transformers cannot follow."""
        name, train = self.model.name, self.train
        if train.recurrence and not self.model.has_coherent_memory:
            raise ValueError(
                f"train.recurrence: {name} has absolute positions, which memory cannot keep apart "
                "from those of the next segment; set it to false"
            )
        if train.recurrence and self.model.is_recurrent and train.loss == "half":
            raise ValueError(
                f"train.loss half reads tokens twice, but the state of {name} can be carried only "
                "from the end of a segment; use loss full, or recurrence false"
            )
        for key in ("compile", "aux_layers"):
            if getattr(train, key):
                raise ValueError(f"train.{key}: not for an architecture of transformers; drop it")

"""Lazy references to models, with all that is known before weights are loaded.

A MODEL is a run directory; `EXPERIMENT/LABEL` or `EXPERIMENT/RUN-ID` under results/; `runs:/ID` of
MLflow; the name of a shipped model; or a source of weights with a prefix, such as `hf:DIR`. Nothing
here loads PyTorch but what such a source needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from txlbench.commands.names import find_run, find_runs, settings_of_row
from txlbench.commands.shipped_models import SHIPPED, prepared_folder
from txlbench.config.catalogue import UNITS, Level
from txlbench.config.identity import fingerprint as identity_of
from txlbench.config.identity import run_id
from txlbench.config.measurements import Settings, segments_of
from txlbench.config.run_config import RunConfig
from txlbench.config.train import TrainConfig
from txlbench.data.download import data_root, file_checksum
from txlbench.data.tokenized import Tokenizer, VocabularyTokenizer
from txlbench.data.vocabulary import VOCABULARIES, Vocabulary, likely_level
from txlbench.errors import UserError
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState

if TYPE_CHECKING:
    import torch

    from txlbench.evaluation.context_losses import WindowModel
    from txlbench.models.interface import LanguageModel
    from txlbench.models.pretrained.pretrained_model import PretrainedModel


class OpenSource(Protocol):
    """Makes the reference to somebody else's weights; `place` is what follows the prefix."""

    def __call__(self, reference: str, place: str) -> "ModelRef": ...


@dataclass(frozen=True)
class Capabilities:
    """Properties of a model that decide what it can be asked for.

    Attributes:
        vocabulary_size: token types it predicts.
        longest_context: the most predecessors it can use; None without limit. Positions that
            restart at every segment are trained up to tgt_len and mean nothing beyond.
        positions: the longest context that it has positions for, which a longer one is refused
            beyond; None without limit.
        reads_in_segments: whether what it remembers of a segment means the same in the next.
        attends: whether it has attention, so that an attention length can be chosen.
        level: what a token is, as far as that is known.
        tokens: its vocabulary in order of id, where it brought one along.
    """

    vocabulary_size: int
    longest_context: int | None = None
    positions: int | None = None
    reads_in_segments: bool = True
    attends: bool = True
    level: Level | None = None
    tokens: tuple[str, ...] | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """bpc or ppl; both where nothing tells what a token is."""
        return ("bpc", "ppl") if self.level is None else (UNITS[self.level],)


@dataclass(frozen=True)
class ModelRef:
    """A reference to a model whose weights are not loaded yet.

    Attributes:
        reference: what the user called it.
        capabilities: what can be asked of it.
        losses: the directory in which its context losses are kept.
        fingerprint: gives what tells its weights from others.
        open: gives the model itself in evaluation mode on a device: a `LanguageModel`, or anything
            with the `token_losses` of a `WindowModel`.
        config: how it was trained, or how its source evaluates it; None where nobody says.
        run: the run directory, where there is one.
        paper: the paper's numbers of its row.
        checkpoint: best or last; of runs only.
        open_tokenizer: gives the tokenizer of a pretrained model; None for a vocabulary of bytes,
            characters or words.
        pretrained: the model of transformers, where it is one.
    """

    reference: str
    capabilities: Capabilities
    losses: Path
    fingerprint: Callable[[], str]
    open: Callable[["torch.device"], "LanguageModel | WindowModel"]
    config: Settings | None = None
    run: RunDirectory | None = None
    paper: Mapping[str, float | str] = field(default_factory=dict)
    checkpoint: str | None = None
    open_tokenizer: Callable[[], Tokenizer] | None = None
    pretrained: "PretrainedModel | None" = None

    @property
    def trained(self) -> RunConfig | None:
        """The configuration it was trained with here; None for somebody else's model."""
        return self.config if isinstance(self.config, RunConfig) else None

    def vocabulary(self, level: Level | None = None) -> Vocabulary | None:
        """The symbols by which text goes in and out, where they are known.

        Args:
            level: what a token is, where only the symbols tell it.

        Raises:
            UserError: for another level than that of the corpus it was trained on.
        """
        known = self.capabilities
        if self.trained is not None and level not in (None, known.level):
            raise UserError(
                f"--level {level}: {self.reference} reads {known.level}s", f"use {known.level}"
            )
        level = level or known.level
        return None if known.tokens is None or level is None else VOCABULARIES[level](known.tokens)

    def tokenizer(self) -> Tokenizer:
        """What cuts text into the model's tokens; UserError where its vocabulary is not known."""
        if self.open_tokenizer is not None:
            return self.open_tokenizer()
        vocabulary = self.vocabulary()
        if vocabulary is None:
            raise UserError(
                f"{self.reference}: has weights but no vocabulary, so it reads no text",
                "add the source's vocabulary file, or import it with one",
            )
        return VocabularyTokenizer(vocabulary, self.reference)

    def check_contexts(self, contexts: Sequence[int]) -> None:
        """Refuses (UserError) contexts that the model has no positions for."""
        limit = self.capabilities.positions
        if limit is not None and contexts and max(contexts) > limit:
            raise UserError(
                f"{self.reference}: context {max(contexts):,} is beyond its positions",
                f"give contexts of at most {limit:,}",
            )

    def load(self, device: "torch.device", precision: str = "fp32") -> "LoadedModel":
        """Loads the weights onto `device`.

        Args:
            precision: fp32 or bf16, of weights and products of pretrained models; fp32, bf16 or
                fp16, of the keys and values that a transformer of this package keeps.

        Raises:
            UserError: for a precision that it is not read in.
        """
        if self.pretrained is not None and precision != "fp32":
            if precision != "bf16":
                raise UserError(
                    f"--precision {precision}: {self.reference} is read in fp32 or bf16", "use bf16"
                )
            return LoadedModel(self, self.pretrained.load(device, precision))
        model: Any = self.open(device)
        if precision != "fp32":
            if not hasattr(model, "keep_in"):
                raise UserError(
                    f"--precision {precision}: {self.reference} is read in fp32", "drop the option"
                )
            model.keep_in(precision)
        return LoadedModel(self, model)


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, and the reference that led to it."""

    ref: ModelRef
    model: Any

    @property
    def settings(self) -> Settings:
        """The configuration of its training or its source; UserError if there is none."""
        if self.ref.config is None:
            raise UserError(
                f"{self.ref.reference}: offers the losses of windows only", "use it with recl"
            )
        return self.ref.config


def resolve(reference: str, checkpoint: str = "best", results: Path = RESULTS) -> ModelRef:
    """The model that `reference` names.

    Args:
        checkpoint: best or last; of runs only.

    Raises:
        UserError: if nothing, or more than one thing, goes by that name, or it has no such
            checkpoint.
    """
    kind, colon, place = reference.partition(":")
    if colon and kind in SOURCES:
        return SOURCES[kind](reference, place)
    if reference in SHIPPED and not Path(reference).exists():
        return open_shipped(reference)
    return _of_run(reference, find_run(reference, results), checkpoint, results)


def resolve_seeds(
    reference: str, checkpoint: str = "best", results: Path = RESULTS
) -> list[ModelRef]:
    """The model that `reference` names, or that of every seed of the row it names."""
    if reference.partition(":")[0] in SOURCES or reference in SHIPPED:
        return [resolve(reference, checkpoint, results)]
    runs = find_runs(reference, results)
    if len(runs) == 1:
        return [_of_run(reference, runs[0], checkpoint, results)]
    experiment = reference.partition("/")[0]
    return [_of_run(f"{experiment}/{run.id}", run, checkpoint, results) for run in runs]


def _of_run(reference: str, run: RunDirectory, checkpoint: str, results: Path) -> ModelRef:
    """The reference to a run, trained or imported; its losses lie beside its weights."""
    imported = run.state is RunState.IMPORTED
    name = "best" if imported else checkpoint
    path = run.checkpoints / f"{name}.pt"
    if not path.is_file():
        if run.read_summary().training is not None and not run.has_weights:
            problem = f"{run.path}: records that were published without weights"
            raise UserError(problem, "train the run anew with `ablate --out DIR`")
        raise UserError(f"{path}: no such checkpoint", "train the run first")
    config: Settings
    if imported:
        config, level = run.read_imported(), None
        size = config.vocabulary_size
    else:
        config = run.read_config()
        if (evaluate := settings_of_row(reference, run, results)) is not None:
            config = config.model_copy(update={"evaluate": evaluate})
        size, level = _vocabulary_size(run), config.corpus.resolved_level

    def load(device: "torch.device") -> "LanguageModel":
        from txlbench.commands.load_model import load_checkpoint

        return load_checkpoint(path, config, size, device)

    return ModelRef(
        reference,
        capabilities_of(config, size, run.read_tokens(), level),
        run.losses,
        lambda: file_checksum(path),
        load,
        config,
        run,
        {} if imported else run.read_paper(),
        None if imported else checkpoint,
    )


def open_foreign(reference: str, place: str) -> ModelRef:
    """The model whose weights somebody else's program wrote; they are read at once."""
    from txlbench.commands.load_model import build, fingerprint, foreign_reader, imported_config

    converted = foreign_reader(reference)()
    config = imported_config(reference, converted)
    weights, size = converted.weights, converted.vocabulary_size
    return ModelRef(
        reference,
        capabilities_of(config, size, converted.tokens, None),
        data_root() / "losses",
        lambda: fingerprint(weights),
        lambda device: build(Path(place), config, size, weights, device),
        config,
    )


def open_hf(reference: str, place: str) -> ModelRef:
    """The model of a folder, or of a name on the hub; Transformer-XL is read by our own core."""
    from txlbench.models.pretrained import pretrained_model

    folder = Path(place)
    if not place or folder.exists():
        if pretrained_model.model_type(folder) in (None, "transfo-xl"):
            return open_foreign(reference, place)
        return open_pretrained(pretrained_model.open_folder(reference, folder))
    return open_pretrained(pretrained_model.open_hub(reference, place))


def open_gguf(reference: str, place: str) -> ModelRef:
    """The model of a GGUF file."""
    from txlbench.models.pretrained import pretrained_model

    return open_pretrained(pretrained_model.open_gguf(reference, Path(place)))


def open_shipped(name: str) -> ModelRef:
    """The shipped model of that name, once it is prepared."""
    from txlbench.models.pretrained import pretrained_model

    return open_pretrained(pretrained_model.open_folder(name, prepared_folder(name)))


def open_pretrained(source: "PretrainedModel") -> ModelRef:
    """The reference to a model of transformers, whose weights are read when it is loaded."""
    positions, bos = source.positions, source.tokenizer.bos
    known = Capabilities(
        source.vocabulary_size,
        positions=None if positions is None else positions - (bos is not None),
        reads_in_segments=False,
        attends=source.attends,
    )
    return ModelRef(
        source.reference,
        known,
        data_root() / "losses",
        lambda: identity_of([file_checksum(file) for file in (*source.files, *source.settings)]),
        source.load,
        open_tokenizer=lambda: source.tokenizer,
        pretrained=source,
    )


SOURCES: dict[str, OpenSource] = {
    **dict.fromkeys(("torch", "tf"), open_foreign),
    "hf": open_hf,
    "gguf": open_gguf,
}
"""Functions that make the reference `PREFIX:PLACE`, by prefix."""


def _vocabulary_size(run: RunDirectory) -> int:
    size = run.read_facts().corpus.vocabulary_size
    if size is None:
        raise UserError(f"{run.path / 'facts.json'}: no vocabulary_size", "restore the file")
    return int(size)


def capabilities_of(
    config: Settings, vocabulary_size: int, tokens: tuple[str, ...] | None, level: Level | None
) -> Capabilities:
    """The capabilities of a model of this package.

    Args:
        level: None to tell it from the vocabulary.
    """
    coherent = config.model.has_coherent_memory
    # transformers' caches were tried before training with memory, and only then.
    tried = config.model.kind != "hf" or segments_of(config).recurrence
    return Capabilities(
        vocabulary_size,
        longest_context=None if coherent else segments_of(config).tgt_len,
        reads_in_segments=coherent and tried,
        attends=not config.model.is_recurrent,
        level=level or (None if tokens is None else likely_level(tokens)),
        tokens=tokens,
    )


def same_with_resets(ref: ModelRef) -> ModelRef | None:
    """The same run trained with memory resets, among the runs beside it."""
    trained, checkpoint = ref.trained, ref.checkpoint or "best"
    if trained is None or ref.run is None or trained.train.memory_reset:
        return None
    wanted = _without_resets(trained)
    for path in sorted(ref.run.path.parent.glob("*/config.yaml")):
        run = RunDirectory(path.parent)
        if run.state is RunState.IMPORTED or not (run.checkpoints / f"{checkpoint}.pt").is_file():
            continue
        config = run.read_config()
        if config.train.memory_reset and _without_resets(config) == wanted:
            return resolve(str(run.path), checkpoint)
    return None


def _without_resets(run: RunConfig) -> str:
    """The id of the run that resets no memory in training, and is the same otherwise."""
    kept = {key: TrainConfig.ADDED[key] for key in ("memory_reset", "memory_reset_from")}
    return run_id(run.model_copy(update={"train": run.train.model_copy(update=kept)}))

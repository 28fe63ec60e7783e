"""`speed`: what a new token costs with a sliding window and with state that is reused (Table 9)."""

import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from txlbench.commands.model_ref import LoadedModel, ModelRef, capabilities_of, resolve
from txlbench.commands.names import FRESH, short_titles
from txlbench.commands.pretrained import causal_model
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import CORPORA
from txlbench.config.grid import Experiment, Line, load_experiment
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import evaluation_clamp
from txlbench.config.run_config import CorpusConfig
from txlbench.data.download import data_root
from txlbench.data.prepare import prepare
from txlbench.errors import UserError, suggestion
from txlbench.evaluation.pretrained_timing import pretrained_cached_task, pretrained_window_task
from txlbench.evaluation.timing import (
    AT_LEAST,
    Setting,
    Task,
    reuse_task,
    time_by_turns,
    window_task,
)
from txlbench.machine import current_commit, own_device, processor
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.finding_schema import SpeedRecord, SpeedResult, SpeedSource, Spread
from txlbench.reporting.figures.style import Look
from txlbench.training.runtime import autocast

WARM_UP = 2


@dataclass(frozen=True)
class SpeedRequest:
    """A call of `speed`.

    Attributes:
        models: MODELs, or FILE.yaml:LABEL for a row's sizes with random weights. The first that
            attends is the baseline, in sliding windows.
        tgt_lens: tokens a segment with reuse; the attention length itself is always among them.
        rounds: timings of each number.
        out: the directory of results; default results/speed-<hash>.
        command: what was typed, for tables and figures.
    """

    models: tuple[str, ...]
    attention_lengths: tuple[int, ...] = (800, 1800, 2800, 3800)
    tgt_lens: tuple[int, ...] = (1, 128, 512)
    batch_size: int = 1
    rounds: int = 5
    precision: str = "fp32"
    device: str = "auto"
    checkpoint: str = "best"
    out: Path | None = None
    command: str = field(default_factory=lambda: shlex.join(["txlbench", *sys.argv[1:]]))


@dataclass(frozen=True)
class Case:
    """A model and how it is read: with windows, or with state and segments of `tgt_len`."""

    model: str
    regime: Literal["window", "reuse"]
    tgt_len: int | None

    @property
    def key(self) -> str:
        return f"{self.model} {self.regime} {self.tgt_len}"


def run_speed(request: SpeedRequest, look: Look | None = None) -> PublishedFinding:
    """Times every model at every attention length and writes speed.json, tables and figures.

    Raises:
        UserError: if no model attends, or one cannot read as far as is asked.
    """
    lengths = tuple(dict.fromkeys(request.attention_lengths))
    request = replace(request, attention_lengths=lengths)
    directory = request.out or RESULTS / f"speed-{_identity(request)}"
    return publish(directory / "speed.json", lambda: _measured(request), look)


def _measured(request: SpeedRequest) -> SpeedRecord:
    device = own_device(request.device)
    models = _models(request, device)
    attending = (name for name, each in models.items() if each.ref.capabilities.attends)
    baseline = next(attending, None)
    if baseline is None:
        raise UserError("no model has a window to slide", "add a transformer as the baseline")
    return SpeedRecord(
        schema=SpeedRecord.SCHEMA,
        device=str(device),
        machine=_machine(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        precision=request.precision,
        batch_size=request.batch_size,
        rounds=request.rounds,
        warm_up=WARM_UP,
        attention_lengths=request.attention_lengths,
        baseline=baseline,
        models={title: _source(each) for title, each in models.items()},
        commit=current_commit(),
        command=request.command,
        results=tuple(
            result
            for length in request.attention_lengths
            for result in _results(request, models, baseline, length, device)
        ),
    )


def _source(loaded: LoadedModel) -> SpeedSource:
    source = loaded.ref.pretrained
    network = loaded.model if source is None else causal_model(loaded).network
    return SpeedSource(
        reference=loaded.ref.reference,
        name=loaded.settings.model.name if source is None else source.architecture,
        parameters=sum(weight.numel() for weight in network.parameters()),
    )


def _identity(request: SpeedRequest) -> str:
    """Hash of what was asked for and where: speeds of another device are another question."""
    unhashed = ("out", "command", "device")
    fields = {key: value for key, value in vars(request).items() if key not in unhashed}
    device = own_device(request.device)
    place = {"device": str(device), "machine": _machine(device), "threads": torch.get_num_threads()}
    return fingerprint(fields | place)


def _models(request: SpeedRequest, device: torch.device) -> dict[str, LoadedModel]:
    """The models that are timed, by the titles that tables give them."""
    references = list(dict.fromkeys(request.models))
    refs = [
        fresh_model(name) if is_fresh(name) else resolve(name, request.checkpoint)
        for name in references
    ]
    return {
        title: ref.load(device) for title, ref in zip(short_titles(references), refs, strict=True)
    }


def is_fresh(reference: str) -> bool:
    """Whether `reference` is FILE.yaml:LABEL, or FILE.yaml."""
    return reference.partition(":")[0].endswith(FRESH)


def fresh_model(reference: str) -> ModelRef:
    """The row's model with random weights.

    Raises:
        UserError: if there is no such row.
    """
    path, _, label = reference.partition(":")
    line = _line(reference, label, load_experiment(Path(path), partial=True))
    config = line.configs[0]
    size = vocabulary_size(config.corpus)

    def build(device: torch.device) -> LanguageModel:
        torch.manual_seed(config.seed)
        return build_model(config.model, size).to(device).eval()

    return ModelRef(
        reference,
        capabilities_of(config, size, None, config.corpus.resolved_level),
        data_root() / "losses",
        lambda: f"random {config.seed}",
        build,
        config,
        paper=line.paper,
    )


def _line(reference: str, label: str, experiment: Experiment) -> Line:
    if found := experiment.line(label):
        return found
    if not label and len(experiment.lines) == 1 and not experiment.unknown:
        return experiment.lines[0]
    known = [line.label for line in experiment.lines]
    raise UserError(f"{reference}: no such row", suggestion(label, known))


def vocabulary_size(corpus: CorpusConfig) -> int:
    """Token types of a corpus; it is prepared only where nothing else tells."""
    known = CORPORA[corpus.name].vocabulary_size if corpus.path is None else None
    return known or len(prepare(corpus).vocabulary)


def _results(
    request: SpeedRequest,
    models: Mapping[str, LoadedModel],
    baseline: str,
    length: int,
    device: torch.device,
) -> Iterator[SpeedResult]:
    """Times every model at one attention length, by turns."""
    tasks = {
        case: task
        for title, loaded in models.items()
        for case, task in _tasks(request, title, loaded, length, device)
    }
    with autocast(request.precision, device):
        timed = time_by_turns(
            {case.key: task for case, task in tasks.items()}, request.rounds, WARM_UP, device
        )
    slow = timed[Case(baseline, "window", None).key]
    for case in tasks:
        seconds = timed[case.key]
        published = models[case.model].ref.paper
        paper = published.get(f"speedup_{length}") if case.regime == "reuse" else None
        yield SpeedResult(
            model=case.model,
            regime=case.regime,
            attention_length=length,
            tgt_len=case.tgt_len,
            seconds_per_token=_spread(seconds),
            speedup=_speedup(slow, seconds),
            paper=None if isinstance(paper, str) else paper,
        )


def _tasks(
    request: SpeedRequest, title: str, loaded: LoadedModel, length: int, device: torch.device
) -> Iterator[tuple[Case, Task]]:
    if loaded.ref.pretrained is not None:
        yield from _pretrained_tasks(request, title, loaded, length, device)
        return
    known, clamp_len = loaded.ref.capabilities, evaluation_clamp(loaded.settings)
    setting = Setting(loaded.model, known.vocabulary_size, request.batch_size, device)
    if known.attends:
        yield Case(title, "window", None), window_task(setting, length, clamp_len)
    if known.reads_in_segments:
        span = AttentionSpan(mem_len=length, clamp_len=clamp_len, same_length=known.attends)
        # A recurrent state knows no attention length: its slowest and its fastest way will do.
        tgt_lens = request.tgt_lens if known.attends else (min(request.tgt_lens),)
        for tgt_len in dict.fromkeys((*tgt_lens, length)):
            task = reuse_task(setting, span, tgt_len, known.attends)
            yield Case(title, "reuse", tgt_len), task


def _pretrained_tasks(
    request: SpeedRequest, title: str, loaded: LoadedModel, length: int, device: torch.device
) -> Iterator[tuple[Case, Task]]:
    """A window of `length` tokens, and one token a pass with a cache of as many."""
    loaded.ref.check_contexts((length + AT_LEAST,))
    size = loaded.ref.capabilities.vocabulary_size
    given = (causal_model(loaded), size, request.batch_size, length, device)
    if loaded.ref.capabilities.attends:
        yield Case(title, "window", None), pretrained_window_task(*given)
    yield Case(title, "reuse", 1), pretrained_cached_task(*given)


def _machine(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


def _speedup(slow: Sequence[float], seconds: Sequence[float]) -> Spread:
    """The factors of each round; their median lies within their quartiles."""
    return _spread([one / own for one, own in zip(slow, seconds, strict=True)])


def _spread(values: list[float]) -> Spread:
    """Median, lowest, highest, and the quartiles where there are enough values."""
    # Inclusive: of few values the others would lie outside what was measured.
    low, _, high = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return Spread(
        median=statistics.median(values),
        min=min(values),
        max=max(values),
        lower_quartile=low,
        upper_quartile=high,
    )

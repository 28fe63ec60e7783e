"""`speed`: what a new token costs with a sliding window and with state that is reused (Table 9)."""

import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from txlbench.commands.load_model import LoadedModel, fresh_model, is_fresh, load_model
from txlbench.commands.names import find_run, is_foreign, shortest_suffixes
from txlbench.commands.publish import PublishedFinding, publish
from txlbench.config.base import AttentionSpan
from txlbench.config.identity import fingerprint
from txlbench.errors import UserError
from txlbench.evaluation.timing import Setting, Task, reuse_task, time_by_turns, window_task
from txlbench.machine import current_commit, own_device, processor
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.finding_schema import SpeedRecord, SpeedResult, SpeedSource, Spread
from txlbench.training.runtime import autocast

WARM_UP = 2


@dataclass(frozen=True)
class SpeedRequest:
    """What the user asked `speed` for.

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
class Contender:
    """A model that is timed, by the name that tables give it."""

    name: str
    loaded: LoadedModel
    paper: Mapping[str, float | str]


@dataclass(frozen=True)
class Case:
    """A model read in one way: with windows, or with state and segments of `tgt_len`."""

    model: str
    regime: Literal["window", "reuse"]
    tgt_len: int | None

    @property
    def key(self) -> str:
        return f"{self.model} {self.regime} {self.tgt_len}"


def run_speed(request: SpeedRequest) -> PublishedFinding:
    """Times every model at every attention length and writes speed.json, tables and figures.

    Raises:
        UserError: if no model attends, or one cannot read as far as is asked.
    """
    lengths = tuple(dict.fromkeys(request.attention_lengths))
    request = replace(request, attention_lengths=lengths)
    directory = request.out or RESULTS / f"speed-{_identity(request)}"
    return publish(directory / "speed.json", lambda: _measured(request))


def _measured(request: SpeedRequest) -> SpeedRecord:
    device = own_device(request.device)
    contenders = _contenders(request, device)
    baseline = next((each for each in contenders if not each.loaded.config.is_recurrent), None)
    if baseline is None:
        raise UserError("no model has a window to slide", "add a transformer as the baseline")
    cuda = device.type == "cuda"
    return SpeedRecord(
        schema=SpeedRecord.SCHEMA,
        device=str(device),
        machine=torch.cuda.get_device_name(device) if cuda else processor(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        precision=request.precision,
        batch_size=request.batch_size,
        rounds=request.rounds,
        warm_up=WARM_UP,
        attention_lengths=request.attention_lengths,
        baseline=baseline.name,
        models={each.name: _source(each.loaded) for each in contenders},
        commit=current_commit(),
        command=request.command,
        results=tuple(
            result
            for length in request.attention_lengths
            for result in _results(request, contenders, baseline, length, device)
        ),
    )


def _source(loaded: LoadedModel) -> SpeedSource:
    return SpeedSource(
        reference=loaded.reference,
        name=loaded.config.name,
        parameters=sum(weight.numel() for weight in loaded.model.parameters()),
    )


def _identity(request: SpeedRequest) -> str:
    """Hash of what was asked for and where: speeds of another device are another question."""
    fields = {key: value for key, value in vars(request).items() if key not in ("out", "command")}
    return fingerprint(fields)


def _contenders(request: SpeedRequest, device: torch.device) -> list[Contender]:
    references = list(dict.fromkeys(request.models))
    found = [_load(reference, device, request.checkpoint) for reference in references]
    names = shortest_suffixes([reference.replace(":", "/") for reference in references])
    return [
        Contender(name, loaded, paper) for name, (loaded, paper) in zip(names, found, strict=True)
    ]


def _load(
    reference: str, device: torch.device, checkpoint: str
) -> tuple[LoadedModel, Mapping[str, float | str]]:
    if is_fresh(reference):
        return fresh_model(reference, device)
    loaded = load_model(reference, device, checkpoint)
    return loaded, {} if is_foreign(reference) else find_run(reference).read_paper()


def _results(
    request: SpeedRequest,
    contenders: list[Contender],
    baseline: Contender,
    length: int,
    device: torch.device,
) -> Iterator[SpeedResult]:
    """What is timed at one attention length, by turns."""
    tasks = {
        case: task
        for contender in contenders
        for case, task in _tasks(request, contender, length, device)
    }
    with autocast(request.precision, device):
        timed = time_by_turns(
            {case.key: task for case, task in tasks.items()}, request.rounds, WARM_UP, device
        )
    slow = timed[Case(baseline.name, "window", None).key]
    papers = {contender.name: contender.paper for contender in contenders}
    for case in tasks:
        seconds = timed[case.key]
        paper = papers[case.model].get(f"speedup_{length}") if case.regime == "reuse" else None
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
    request: SpeedRequest, contender: Contender, length: int, device: torch.device
) -> Iterator[tuple[Case, Task]]:
    loaded = contender.loaded
    setting = Setting(loaded.model, loaded.vocabulary_size, request.batch_size, device)
    attends = not loaded.config.is_recurrent
    if attends:
        yield Case(contender.name, "window", None), window_task(setting, length)
    if loaded.config.has_coherent_memory:
        span = AttentionSpan(
            mem_len=length, clamp_len=loaded.look_back.clamp_len, same_length=attends
        )
        # A recurrent state knows no attention length: its slowest and its fastest way will do.
        tgt_lens = request.tgt_lens if attends else (min(request.tgt_lens),)
        for tgt_len in dict.fromkeys((*tgt_lens, length)):
            task = reuse_task(setting, span, tgt_len, attends)
            yield Case(contender.name, "reuse", tgt_len), task


def _speedup(slow: Sequence[float], seconds: Sequence[float]) -> Spread:
    """How many times faster, round by round: its median lies within its quartiles."""
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

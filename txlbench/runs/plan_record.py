"""What `--dry-run` tells of each run: size, FLOPs, memory, disk space and hours, and the totals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType

from txlbench.config.accelerators import UTILISATION, Accelerator
from txlbench.config.counting import (
    checkpoint_bytes,
    evaluation_flops,
    parameters,
    train_flops,
    train_targets,
)
from txlbench.config.measurements import Measurement, all_measurements, training_regime
from txlbench.config.memory_use import training_memory
from txlbench.config.plugins import naming_plugin
from txlbench.runs.plan import (
    Need,
    PlannedRun,
    as_met,
    predictions,
    trained_elsewhere,
    vocabulary_size,
    with_evaluation,
)
from txlbench.runs.plan_schema import (
    HERE,
    AcceleratorEstimate,
    PlanEntry,
    PlanRecord,
    PlanTotal,
    ProbeEstimate,
    sum_known,
)
from txlbench.runs.speed_probe import Probed

NOT_PROBED = "this machine is measured with --probe"


def describe_plan(
    runs: Sequence[PlannedRun],
    stale: Mapping[str, str] = MappingProxyType({}),
    accelerators: Sequence[Accelerator] = (),
    utilisation: float = UTILISATION,
    probed: Mapping[str, Probed | str] = MappingProxyType({}),
    jobs: int = 1,
) -> PlanRecord:
    """The plan with sizes and costs.

    Args:
        stale: why a run that is there does not count, by id.
        probed: what was measured on this machine, or why nothing was, by id.
        jobs: runs that this machine does at once.
    """
    speeds = [speed for run in runs if (speed := _flops_a_second(run)) is not None]
    speed = min(speeds, default=None)
    entries = []
    for run in runs:
        with naming_plugin(run.config.model.name, run.config.model.plugin):
            entry = _describe(run, speed, stale.get(run.id, ""))
        known = accelerators if entry.train_flops is not None else ()
        on = tuple(_on(run, entry, each, utilisation) for each in known)
        entries.append(_with_probe(run, entry.model_copy(update={"accelerators": on}), probed))
    return PlanRecord(runs=tuple(entries), total=_total(entries, jobs))


def _describe(run: PlannedRun, speed: float | None, stale: str) -> PlanEntry:
    twin = trained_elsewhere(run)
    size, evaluation = vocabulary_size(run), _evaluation_flops(run)
    flops = train_flops(run.config, size) if size else None
    seconds = flops / speed if flops and speed else None
    memory = _memory(run, size) if size else None
    no_size = "the vocabulary is known once the corpus is prepared"
    unknown = {"probe": NOT_PROBED}
    if not size:
        unknown |= dict.fromkeys(("parameters", "train_flops", "estimated_bytes"), no_size)
    if not seconds:
        no_speed = "no run of this experiment is trained yet"
        unknown["estimated_seconds"] = no_speed if size else no_size
    if evaluation is None:
        no_tokens = "the tokens of a split are known once the corpus is prepared"
        unknown["evaluation_flops"] = no_tokens if size else no_size
    if memory is None:
        no_formula = "no formula knows the memory of an architecture of transformers"
        unknown["memory_bytes"] = no_formula if size else no_size
    return PlanEntry(
        id=run.id,
        label=run.labels[0],
        labels=run.labels,
        seed=run.config.seed,
        state=run.directory.current_state,
        need=Need.TRAINING if stale else replace(run, directory=twin or run.directory).need(),
        stale=stale,
        copied_from=str(twin.path) if twin else "",
        parameters=parameters(run.config.model, size) if size else None,
        train_tokens=train_targets(run.config),
        train_flops=flops,
        evaluation_flops=None if evaluation is None else round(evaluation),
        estimated_seconds=seconds,
        estimated_bytes=checkpoint_bytes(run.config, size) if size else None,
        memory_bytes=memory,
        accelerators=(),
        probe=None,
        unknown=unknown,
    )


def _memory(run: PlannedRun, size: int) -> dict[str, dict[str, int]] | None:
    if run.config.model.kind == "hf":
        return None
    return {
        precision: asdict(training_memory(as_met(run), size, precision))
        for precision in ("fp32", "bf16")
    }


def work_of_evaluation(run: PlannedRun) -> list[tuple[Measurement, int]]:
    """The measurements of a run, each with how often it is made: validations, then the results."""
    train = run.config.train
    validation = training_regime(run.config, "valid").model_copy(
        update={"tokens": train.eval_tokens}
    )
    times = -(-train.max_step // train.eval_interval)
    asked = [
        each
        for evaluate in run.evaluations
        for each in all_measurements(with_evaluation(run.config, evaluate))
    ]
    return [(validation, times), *((each, 1) for each in {m.key: m for m in asked}.values())]


def flops_of(run: PlannedRun, measurement: Measurement) -> float | None:
    """Necessary FLOPs of a measurement; None if the vocabulary or the split is unknown."""
    size, count = vocabulary_size(run), predictions(run, measurement.split)
    if size is None or count is None:
        return None
    return evaluation_flops(run.config.model, size, measurement, count)


def _evaluation_flops(run: PlannedRun) -> float | None:
    total = 0.0
    for measurement, times in work_of_evaluation(run):
        flops = flops_of(run, measurement)
        if flops is None:
            return None
        total += times * flops
    return total


def _on(
    run: PlannedRun, entry: PlanEntry, accelerator: Accelerator, utilisation: float
) -> AcceleratorEstimate:
    """What the run takes there; evaluation counts as far as the splits are known."""
    precision, rate = accelerator.rate(run.config.train.precision)
    _, in_float32 = accelerator.rate("fp32")
    training = entry.train_flops or 0
    seconds = training / (rate * utilisation)
    seconds += (entry.evaluation_flops or 0) / (in_float32 * utilisation)
    size, memory = vocabulary_size(run), None
    if size is not None and entry.memory_bytes is not None:
        memory = training_memory(as_met(run), size, precision, "cuda").total
    return AcceleratorEstimate(
        name=accelerator.name,
        precision=precision,
        utilisation=utilisation,
        hours=seconds / 3600,
        memory_bytes=memory,
        memory_fits=None if memory is None else memory <= accelerator.memory_gb * 1e9,
    )


def _with_probe(run: PlannedRun, entry: PlanEntry, probed: Mapping[str, Probed | str]) -> PlanEntry:
    found = probed.get(run.id)
    if found is None:
        return entry
    if isinstance(found, str):
        return entry.model_copy(update={"unknown": {**entry.unknown, "probe": found}})
    evaluation = _evaluation_seconds(run, found)
    training = found.step_seconds * run.config.train.max_step
    estimate = ProbeEstimate(
        step_seconds=found.step_seconds,
        steps=found.steps,
        precision=found.precision,
        threads=found.threads,
        device=found.device,
        memory_bytes=found.memory_bytes,
        training_hours=training / 3600,
        evaluation_hours=None if evaluation is None else evaluation / 3600,
        hours=(training + (evaluation or 0)) / 3600,
    )
    unknown = {name: reason for name, reason in entry.unknown.items() if name != "probe"}
    return entry.model_copy(update={"probe": estimate, "unknown": unknown})


def _evaluation_seconds(run: PlannedRun, probed: Probed) -> float | None:
    """Time of validations and measurements, each at the speed of the probed one of its kind."""
    regime, *sweep = probed.measurements
    seconds = 0.0
    for measurement, times in work_of_evaluation(run):
        flops = flops_of(run, measurement)
        if flops is None:
            return None
        like = sweep[0] if sweep and measurement.attention_length else regime
        seconds += times * flops / like.flops_a_second
    return seconds


def _total(entries: Sequence[PlanEntry], jobs: int) -> PlanTotal:
    """Sums over the runs that need training."""
    todo = [entry for entry in entries if entry.need is Need.TRAINING]
    memories = [entry.memory_bytes for entry in todo if entry.memory_bytes is not None]
    hours: dict[str, float | None] = {
        each.name: sum(
            estimate.hours
            for entry in todo
            for estimate in entry.accelerators
            if estimate.name == each.name
        )
        for each in (todo[0].accelerators if todo else ())
    }
    here = [entry.probe.hours for entry in todo if entry.probe is not None]
    if here:
        hours[HERE] = sum(here) / jobs if len(here) == len(todo) else None
    return PlanTotal(
        runs=len(todo),
        train_tokens=sum(entry.train_tokens for entry in todo),
        train_flops=sum_known([entry.train_flops for entry in todo]),
        evaluation_flops=sum_known([entry.evaluation_flops for entry in todo]),
        estimated_bytes=sum_known([entry.estimated_bytes for entry in todo]),
        largest_memory_bytes={
            precision: max(each[precision]["total"] for each in memories)
            for precision in ("fp32", "bf16")
        }
        if memories
        else None,
        hours=hours,
    )


def _flops_a_second(run: PlannedRun) -> float | None:
    """Of a trained run, as a guide for the others."""
    size = vocabulary_size(run)
    if size is None or run.need() not in (Need.NOTHING, Need.EVALUATION):
        return None
    training = run.directory.read_summary().training
    seconds = training and training.seconds
    return train_flops(run.config, size) / max(seconds, 1e-9) if seconds else None

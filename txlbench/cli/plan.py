"""What `ablate --dry-run` shows: a table of runs with their costs, and the totals."""

from functools import partial
from typing import TYPE_CHECKING

import click

from txlbench.reporting.table import Column, Table, compact, for_terminal, plain_text
from txlbench.runs.dry_run import changed_texts, cost_of
from txlbench.runs.failure import readable
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.plan_record import NOT_PROBED, describe_plan
from txlbench.runs.plan_schema import HERE, PlanEntry, PlanRecord
from txlbench.runs.status import duration
from txlbench.runs.tuning import check_tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from txlbench.config.accelerators import Accelerator


def show_plan(
    request: Request,
    format_: str,
    accelerators: "Sequence[Accelerator]",
    utilisation: float,
    probe: bool,
) -> None:
    """Prints the plan of `ablate`; writes no file."""
    experiment, _, plan = open_experiment(request)
    stale = changed_texts(plan, request.device)
    measured, jobs = {}, 1
    if probe:
        from txlbench.machine import choose_devices
        from txlbench.runs.speed_probe import probe_plan

        devices = choose_devices(
            request.device,
            request.jobs,
            len(experiment.runs()),
            request.threads,
            processes=max(run.config.train.devices for run in plan),
        )
        measured, jobs = probe_plan(plan, devices, _say), devices.jobs
    described = describe_plan(plan, stale, accelerators, utilisation, measured, jobs)
    if request.tune_trials is not None:
        check_tuning(request, experiment)
        described = described.with_tuning(request.tune_trials)
    if format_ == "json":
        click.echo(described.model_dump_json(by_alias=True, indent=2))
        return
    for warning in experiment.warnings:
        click.echo(f"Warning: {warning}", err=True)
    table = plan_table(described)
    click.echo(plain_text(for_terminal(table, "")).rstrip())
    cost = str(cost_of(described, request.device))
    for line in (*_totals(described, utilisation), cost, *_tuning(described)):
        click.echo(line)


def _say(label: str) -> None:
    click.echo(f"measuring {label}", err=True)


def plan_table(described: PlanRecord) -> Table:
    """A row for each run of the plan."""
    runs = described.runs
    columns = [
        Column("run", tuple(" = ".join(run.labels) for run in runs)),
        Column("seed", tuple(str(run.seed) for run in runs), True, 2),
        Column("id", tuple(run.id for run in runs), rank=6),
        Column("state", tuple(str(run.state) for run in runs)),
        Column("needs", tuple(str(run.need) for run in runs)),
        _numbers(described, "parameters", 1, lambda run: _count(run.parameters)),
        _numbers(described, "targets", 3, lambda run: _count(run.train_tokens)),
        _numbers(described, "FLOPs", 2, lambda run: _flops(run.train_flops)),
        _numbers(described, "FLOPs, evaluation", 5, lambda run: _flops(run.evaluation_flops)),
        _numbers(described, "memory fp32", 1, lambda run: _memory(run, "fp32")),
        _numbers(described, "memory bf16", 1, lambda run: _memory(run, "bf16")),
        _numbers(described, "disk", 3, lambda run: _bytes(run.estimated_bytes)),
    ]
    if any(run.probe for run in runs):
        columns.append(_numbers(described, HERE, 0, _here))
    for index, each in enumerate(_first_accelerators(described)):
        columns.append(_numbers(described, each, 0, partial(_there, index)))
    columns.append(Column("notes", tuple(map(_note, runs))))
    return Table(tuple(columns), _legend(described), "")


def _numbers(
    described: PlanRecord, header: str, rank: int, cell: "Callable[[PlanEntry], str]"
) -> Column:
    return Column(header, tuple(map(cell, described.runs)), True, rank)


def _first_accelerators(described: PlanRecord) -> list[str]:
    named = (run.accelerators for run in described.runs if run.accelerators)
    return [each.name for each in next(named, ())]


def _count(number: int | None) -> str:
    return "?" if number is None else compact(number)


def _flops(number: int | None) -> str:
    return "?" if number is None else f"{number:.1e}"


def _bytes(number: int | None) -> str:
    return "?" if number is None else readable(number)


def _memory(run: PlanEntry, precision: str) -> str:
    return "?" if run.memory_bytes is None else readable(run.memory_bytes[precision]["total"])


def _here(run: PlanEntry) -> str:
    return "?" if run.probe is None else duration(run.probe.hours * 3600)


def _there(index: int, run: PlanEntry) -> str:
    """Time on an accelerator; a star where its memory is too small."""
    if not run.accelerators:
        return "?"
    each = run.accelerators[index]
    return duration(each.hours * 3600) + "*" * (each.memory_fits is False)


def _note(run: PlanEntry) -> str:
    if run.copied_from:
        return f"copied from {run.copied_from}"
    if run.stale:
        return run.stale
    reason = run.unknown.get("probe", NOT_PROBED)
    return "" if reason == NOT_PROBED else f"not measured: {reason}"


def _legend(described: PlanRecord) -> tuple[str, ...]:
    every = (each for run in described.runs for each in run.accelerators)
    if any(each.memory_fits is False for each in every):
        return ("* more than its memory: raise train.batch_chunk, or take more devices",)
    return ()


def _tuning(described: PlanRecord) -> list[str]:
    """What tuning costs before, if it was asked for."""
    if (found := described.tuning) is None:
        return []
    hours = "".join(f", {duration(each * 3600)} on {name}" for name, each in found.hours.items())
    return [
        f"tuning before: {found.trials} trials a row, at most {found.runs} runs, "
        f"{compact(found.train_tokens)} targets, {_flops(found.train_flops)} FLOPs{hours}; "
        "each winner is one of them"
    ]


def _totals(described: PlanRecord, utilisation: float) -> list[str]:
    """A line for each accelerator."""
    share = f"at {utilisation:.0%} of its peak rate, on one device"
    return [
        f"{name}: {duration(hours * 3600)} in all {share}"
        for name, hours in described.total.hours.items()
        if name != HERE and hours is not None
    ]

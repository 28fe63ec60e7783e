"""`txlbench ablate`: train and measure every row of an experiment file."""

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The experiment's directory.  [default: results/NAME]",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at once.  [default: one a core]")
@click.option(
    "--threads", type=click.IntRange(min=1), help="CPU threads a run.  [default: cores / jobs]"
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a base setting."
)
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Only rows whose label or run id matches."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, touch nothing.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Of --dry-run.",
)
@click.option("--keep-going", is_flag=True, help="Go on although the first two runs fail alike.")
@click.option("--retry", is_flag=True, help="Run failed and diverged runs again.")
def ablate(dry_run: bool, format_: str, **options: Any) -> int:
    """Train and measure every row of the experiment file SPEC.

    Finished runs are skipped and partial ones continue, so the same line may be typed again after
    any interruption. Tables, figures and run directories go to results/NAME, and to MLflow.
    """
    from txlbench.runs.plan import Request

    request = Request(**options)
    if dry_run:
        return _show_plan(request, format_)
    return _ablate(request)


def _show_plan(request: Any, format_: str) -> int:
    from txlbench.runs.dry_run import foresee
    from txlbench.runs.plan import describe_plan, open_experiment

    experiment, _, plan = open_experiment(request)
    described = describe_plan(plan, foresee(plan, request.device))
    if format_ == "json":
        click.echo(json.dumps(described, indent=2))
        return 0
    for warning in experiment.warnings:
        click.echo(f"Warning: {warning}", err=True)
    for run in described["runs"]:
        click.echo(_plan_line(run))
    return 0


def _plan_line(run: dict[str, Any]) -> str:
    """One run of the plan for people."""
    size = f"{run['parameters']:,} parameters" if run["parameters"] else "size unknown yet"
    seconds = run["estimated_seconds"]
    time = f", about {_duration(seconds)}" if seconds and run["need"] == "training" else ""
    labels = " = ".join(run["labels"])
    state = f"{run['state']}, but {run['stale']}" if "stale" in run else run["state"]
    return (
        f"{run['id']}  {labels}, seed {run['seed']}: {state}, needs {run['need']}; "
        f"{size}, {run['train_tokens']:,} targets{time}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _ablate(request: Any) -> int:
    from rich.console import Console

    from txlbench.cli.progress import ProgressDisplay
    from txlbench.runs.ablation import ablate as run_ablation
    from txlbench.runs.job import interrupts

    console = Console(soft_wrap=True)
    with interrupts():
        outcome = run_ablation(request, ProgressDisplay(console))
    console.print()
    console.print(outcome.table, markup=False, highlight=False)
    for name, place in outcome.places:
        console.print(f"{name:8} {place}", markup=False, highlight=False)
    return int(outcome.status)

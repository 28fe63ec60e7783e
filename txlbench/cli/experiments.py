"""Verbs of experiment files: `ablate` trains their rows, `check`, `schema` and `new`."""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txlbench.cli.options import (
    NumberRange,
    corpus_level_option,
    count_option,
    device_option,
    force_option,
    format_option,
    launch_options,
    out_option,
    verb,
    width_option,
)
from txlbench.config.accelerators import ACCELERATORS, UTILISATION, accelerators_named

if TYPE_CHECKING:
    from txlbench.commands.check import Checked
    from txlbench.commands.check_device import CheckedKernel
    from txlbench.reporting.table import Table
    from txlbench.runs.executors.executor import Launcher
    from txlbench.runs.plan import Request


@verb(
    "ablate",
    "txlbench ablate experiments/quick.yaml",
    "txlbench ablate experiments/quick.yaml --dry-run --accelerator a100,h100",
    "txlbench ablate experiments/quick.yaml --only 'Shaw*' --set train.max_step=200",
)
@click.argument("spec", type=click.Path(path_type=Path))
@out_option("Directory of the experiment.", instead="results/NAME")
@count_option("--jobs", None, "Runs trained at the same time.  [default: one for each CPU core]")
@count_option("--threads", None, "CPU threads of each run.  [default: cores / jobs]")
@device_option
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replaces a setting of the file for all rows, as train.max_step=200; may be repeated.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Takes only the rows whose label or run id matches, as 'Shaw*'; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Shows what would be trained, and writes nothing.")
@click.option(
    "--probe",
    is_flag=True,
    help="With --dry-run, times each distinct shape here for about ten seconds.",
)
@click.option(
    "--accelerator",
    default="",
    metavar="NAME,...",
    help=f"With --dry-run, tells hours and memory on some of {', '.join(ACCELERATORS)}.",
)
@click.option(
    "--utilisation",
    type=NumberRange(0, 1, min_open=True),
    default=UTILISATION,
    show_default=True,
    help="Share of an accelerator's peak rate that is reached.",
)
@format_option
@click.option(
    "--keep-going", is_flag=True, help="Goes on although the first two runs failed in one way."
)
@click.option("--retry", is_flag=True, help="Trains failed and diverged runs again.")
@width_option
@count_option(
    "--tune-trials",
    None,
    "Trainings by which each row's best settings in the ranges of `tune` are found first.",
)
@launch_options
def ablate(
    dry_run: bool,
    probe: bool,
    accelerator: str,
    utilisation: float,
    format_: str,
    launcher: "Launcher",
    address: str | None,
    resources: tuple[str, ...],
    **options: Any,
) -> int:
    """Train and measure every row of the experiment file SPEC.

    A row is one configuration, trained once for each seed. Finished runs are skipped and
    interrupted ones resume, so the same command can be repeated at any time. The table gives each
    row's loss in the regime it was trained in ("init") and at its best attention length ("best").
    --dry-run tells parameters, FLOPs, memory and time before anything is paid for; --format,
    --probe and --accelerator go with it.
    """
    from txlbench.errors import UserError
    from txlbench.runs.executors.executor import Launch
    from txlbench.runs.plan import Request

    request = Request(launch=Launch.of(launcher, address, resources), **options)
    if dry_run:
        from txlbench.cli.plan import show_plan

        show_plan(request, format_, accelerators_named(accelerator), utilisation, probe)
        return 0
    asked = {
        "--format json": format_ != "text",
        "--probe": probe,
        "--accelerator": accelerator,
        "--utilisation": utilisation != UTILISATION,
    }
    for option in (name for name, given in asked.items() if given):
        raise UserError(f"{option}: goes with --dry-run", f"add --dry-run, or drop {option}")
    return _ablate(request)


def _ablate(request: "Request") -> int:
    from rich.console import Console

    from txlbench.cli.progress import ProgressDisplay
    from txlbench.machine import is_follower
    from txlbench.runs.ablation import ablate as run_ablation
    from txlbench.runs.job import interrupts

    if is_follower():
        from txlbench.runs.executors.torchrun import serve

        serve(request.device)
        return 0
    console = Console(soft_wrap=True, emoji=False)
    with interrupts():
        outcome = run_ablation(request, ProgressDisplay(console))
    console.print()
    console.print(outcome.table, markup=False, highlight=False)
    for name, place in outcome.places:
        console.print(f"{name:8} {place}", markup=False, highlight=False)
    return int(outcome.status)


@verb(
    "check",
    "txlbench check experiments/quick.yaml",
    "txlbench check slope.py:Slope",
    "txlbench check experiments/wt103.yaml --device cuda",
)
@click.argument("specs", nargs=-1, metavar="[SPEC|FILE.py[:NAME]]...")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda|cuda:N",
    help="On a CUDA device fused attention is held against the plain path instead.",
)
def check(specs: tuple[str, ...], device: str) -> int:
    """Test invariants on each model of SPECs: experiment files, or folders of them; or of plug-ins.

    Without SPECS, every encoding is tested. The invariants are causality, memory that is never
    written to, equal losses whether tokens are read in one segment or several, independence of the
    batch, probabilities that sum to one, and training that resumes exactly. Models keep their
    kind, encoding and flags but are made small, and read synthetic tokens.

    A cell holds the largest difference found; `-` means that the invariant is not claimed there.
    The last column is for information: how far losses depend on where segments are cut when memory
    is as short as in the row, which grows with depth and is no fault.

    FILE.py:NAME is a class of a plug-in, or what it is registered as; FILE.py all that it has. A
    plug-in is searched for counterexamples in longer texts too: which position saw which.

    With --device cuda what is tested is the device's fused attention, as before the first step of
    every training there: losses and gradients beside those of the plain path and of float64, in the
    shapes and number formats of SPECs at full size.
    """
    from txlbench.commands.check import check_experiments, check_plugin, spec_files
    from txlbench.errors import ExitStatus, UserError
    from txlbench.machine import own_device
    from txlbench.reporting.table import plain_text

    plugins = [each.rpartition(":") for each in specs if ".py:" in each]
    plugins += [(each, "", "") for each in specs if each.endswith(".py")]
    files = [Path(each) for each in specs if ".py:" not in each and not each.endswith(".py")]
    chosen = None if device == "cpu" else own_device(device)
    if chosen is not None and chosen.type != "cpu":
        if plugins:
            raise UserError(f"{specs[0]}: no experiment file", "give one that uses the plug-in")
        return _check_kernels(spec_files(files), chosen)
    found = [each for path, _, name in plugins for each in check_plugin(Path(path), name)]
    if files or not plugins:
        found += check_experiments(spec_files(files))
    click.echo(plain_text(_table(found)))
    broken = [(each, name) for each in found for name in each.broken]
    for each, name in broken:
        difference = each.differences[name]
        click.echo(f"{each.labels[0]}: {name} does not hold: differs by {difference:.3g}", err=True)
    places = [(each, place) for each in found for place in each.counterexamples]
    for each, place in places:
        shown = f"{place.text}; by up to {place.change:.3g} nats"
        click.echo(f"{each.labels[0]}: {place.invariant}: {shown}", err=True)
    return ExitStatus.RUN_FAILED if broken or places else ExitStatus.DONE


def _check_kernels(files: list[Path], device: Any) -> int:
    from txlbench.commands.check_device import check_kernels
    from txlbench.errors import ExitStatus
    from txlbench.reporting.table import plain_text

    found = list(check_kernels(files, device))
    click.echo(plain_text(_kernel_table(found)))
    failed = [each for each in found if each.attention.reason is not None]
    for each in failed:
        click.echo(f"{each.labels[0]}, {each.precision}: {each.attention.reason}", err=True)
    return ExitStatus.RUN_FAILED if failed else ExitStatus.DONE


def _kernel_table(found: "list[CheckedKernel]") -> "Table":
    from txlbench.reporting.table import EMPTY, Column, Table

    def share(value: float | None) -> str:
        return EMPTY if value is None else f"{value:.0e}"

    facts = [each.attention for each in found]
    columns = (
        Column("row", tuple(map(_name, found))),
        Column("format", tuple(each.precision for each in found)),
        Column("path", tuple(each.path for each in facts)),
        Column("difference", tuple(share(each.difference) for each in facts), is_number=True),
        Column("allowed", tuple(share(each.allowed) for each in facts), is_number=True),
        Column("seconds", tuple(f"{each.seconds or 0:.1f}" for each in facts), is_number=True),
    )
    footer = (
        "Largest difference of losses and gradients of fused attention from those in float64, as a "
        "share of the tensor's norm. Path: what training takes. Seconds: with compilation."
    )
    return Table(columns, (footer,), "")


def _table(found: "list[Checked]") -> "Table":
    from txlbench.reporting.table import Column, Table

    columns = [Column("row", tuple(map(_name, found)))]
    for name in found[0].differences:
        columns.append(Column(name, tuple(_cell(each, name) for each in found)))
    columns.append(Column("cuts (info)", tuple(f"{each.cuts:.0e}" for each in found)))
    footer = (
        f"{len(found)} models, made small, in float64; the largest difference of each invariant."
    )
    return Table(tuple(columns), (footer,), "")


def _name(checked: "Checked | CheckedKernel") -> str:
    more = len(checked.labels) - 1
    return f"{checked.labels[0]}{f' and {more} more' if more else ''}"


def _cell(checked: "Checked", name: str) -> str:
    difference = checked.differences[name]
    if difference is None:
        return "-"
    shown = "0" if difference == 0 else f"{difference:.0e}"
    return f"BROKEN {shown}" if name in checked.broken else f"ok {shown}"


@verb("new", "txlbench new first", "txlbench new words --corpus my-text.txt --level word --force")
@click.argument("name")
@click.option(
    "--corpus",
    metavar="NAME|FILE",
    default="enwiki-sample",
    show_default=True,
    help="Named corpus, or text file, to train on.",
)
@corpus_level_option
@force_option
def new(name: str, **options: Any) -> None:
    """Write a commented experiment file to start from.

    NAME is the name of the experiment, whose file is NAME.yaml, or the path of that file. It trains
    as it stands, a small model with memory, without, and with another encoding.
    """
    from txlbench.commands.new_experiment import new_experiment

    click.echo(new_experiment(name, **options))


def complete_key(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The keys of an experiment file that begin so, for the shell."""
    from txlbench.config.grid import documented_keys

    return [each.name for each in documented_keys() if each.name.startswith(begun)]


@verb("schema", "txlbench schema train.mem_len", "txlbench schema --format json")
@click.argument("key", default="", shell_complete=complete_key)
@format_option
def schema(key: str, format_: str) -> None:
    """List the keys of an experiment file with type, default, meaning and source.

    KEY is a section or a single key; without it all are listed. Rows, grid and --set take the same
    keys in dotted form. --format json gives a JSON Schema of the whole file, by which editors
    complete and check it.
    """
    from txlbench.config.file_schema import experiment_schema, source_of
    from txlbench.config.grid import documented_keys
    from txlbench.config.loading import key_remedy
    from txlbench.errors import UserError

    keys = {each.name: each for each in documented_keys()}
    wanted = [name for name in keys if f"{name}.".startswith(f"{key}." if key else "")]
    if not wanted:
        sections = dict.fromkeys(name.partition(".")[0] for name in keys)
        raise UserError(f"{key}: no such key", key_remedy(key, keys if "." in key else sections))
    if format_ == "json":
        if key:
            raise UserError(f"schema {key} --format json", "drop KEY: the schema is of a file")
        click.echo(json.dumps(experiment_schema(), indent=2))
        return
    for name in wanted:
        each = keys[name]
        click.echo(f"{name}: {each.type}; {each.default}")
        text = f"{each.meaning} Source: {source_of(name)}."
        click.echo(textwrap.fill(text, 96, initial_indent="    ", subsequent_indent="    "))

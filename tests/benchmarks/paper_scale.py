"""What the paper's models take: the tables of docs/reproduce.md and of "Scale on paper".

python -m tests.benchmarks.paper_scale prints them. Nothing is measured; a test holds the pages to
them.
"""

from pathlib import Path

from txlbench.config.accelerators import UTILISATION, accelerators_named
from txlbench.config.counting import parameters, train_flops
from txlbench.config.memory_use import training_memory
from txlbench.config.run_config import RunConfig
from txlbench.reporting.table import compact
from txlbench.runs.failure import readable
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.plan_schema import PlanEntry

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TABLES = sorted(path.name for path in EXPERIMENTS.glob("table*.yaml"))
FILES = ("wt103.yaml", *(name for name in TABLES if "-small" not in name))
DEVICES = accelerators_named("a100,h100")


def lines() -> list[str]:
    """The table as Markdown, a line each, with its legend."""
    header = "file | row | parameters | targets | FLOPs | memory | disk"
    heads = [f"hours on {each.name.upper()}" for each in DEVICES]
    rows = [f"| {header} | {' | '.join(heads)} |", f"|---|---|{'---:|' * (5 + len(heads))}"]
    for name in FILES:
        plan = open_experiment(Request(EXPERIMENTS / name))[2]
        for run in describe_plan(plan, accelerators=DEVICES).runs:
            rows.append(f"| `{name}` | {' | '.join(cells(run))} |")
    share = f"{UTILISATION:.0%} of the peak rate"
    return [*rows, "", f"Hours at {share}, on one device; * more than its memory."]


def cells(run: PlanEntry) -> list[str]:
    assert run.train_flops is not None
    assert run.estimated_bytes is not None
    first = run.accelerators[0]
    assert first.memory_bytes is not None
    return [
        run.label,
        compact(run.parameters),
        compact(run.train_tokens),
        f"{run.train_flops:.1e}",
        readable(first.memory_bytes),
        readable(run.estimated_bytes),
        *(f"{each.hours:,.1f}{'*' * (not each.memory_fits)}" for each in run.accelerators),
    ]


GIGABYTES_A_SECOND = {8: 450, 64: 50}
"""Of gradients between devices: NVLink within one machine of eight H100, one way (its data sheet),
and a network of 400 Gb/s a device between machines."""
BILLION = 10**9


def scale_lines() -> list[str]:
    """Table 6, and two of the paper's models over a billion tokens, on 1, 8 and 64 devices."""
    header = "work | devices | hours on A100 | hours on H100 | memory of each | sent a step, each"
    last = "ms to send | ms a step on H100"
    rows = [f"| {header} | {last} |", f"|---|{'---:|' * 7}"]
    plan = open_experiment(Request(EXPERIMENTS / "wt103.yaml"))[2]
    runs = describe_plan(plan, accelerators=DEVICES).runs
    memory = readable(max(run.accelerators[0].memory_bytes or 0 for run in runs))
    for devices in (1, 8, 64):
        spans = [
            makespan([run.accelerators[each].hours for run in runs], devices)
            for each in range(len(DEVICES))
        ]
        hours = " | ".join(f"{span:.1f}" for span in spans)
        rows.append(f"| Table 6, {len(runs)} runs | {devices} | {hours} | {memory} | - | - | - |")
    large = open_experiment(Request(EXPERIMENTS / "table1-wt103.yaml"))[2][1]
    for run in (plan[0], large):
        for devices in (1, 8, 64):
            cells = " | ".join(shared(run.config, devices))
            rows.append(f"| {run.labels[0]}, 10^9 tokens | {devices} | {cells} |")
    return rows


def makespan(hours: list[float], devices: int) -> float:
    """Hours until all runs are done, each on one device, the longest begun first."""
    until = [0.0] * devices
    for each in sorted(hours, reverse=True):
        until[until.index(min(until))] += each
    return max(until)


def shared(config: RunConfig, devices: int) -> list[str]:
    """Cells of one run on so many devices, each with the batch that one has alone."""
    vocabulary, train = VOCABULARY, config.train
    batch = train.batch_size * devices
    changes = {"devices": devices, "batch_size": batch}
    run = config.model_copy(update={"train": train.model_copy(update=changes)})
    tokens = batch * train.tgt_len
    step_flops = train_flops(run, vocabulary) / train.max_step / devices
    seconds = [step_flops / (each.rate("bf16")[1] * UTILISATION) for each in DEVICES]
    sent = 2 * (devices - 1) / devices * 4 * parameters(run.model, vocabulary)
    sending = sent / (GIGABYTES_A_SECOND[devices] * 1e9) if devices > 1 else 0.0
    steps = BILLION / tokens
    # The backward pass is two thirds of a step; gradients are on their way meanwhile.
    hours = [steps * (each + max(0.0, sending - each * 2 / 3)) / 3600 for each in seconds]
    return [
        *(f"{each:.2f}" for each in hours),
        readable(training_memory(run, vocabulary, "bf16", "cuda").total),
        f"{sent / 1e9:.2f} GB" if devices > 1 else "-",
        f"{1000 * sending:.1f}" if devices > 1 else "-",
        f"{1000 * seconds[-1]:.0f}",
    ]


VOCABULARY = 267_735
"""Words of WikiText-103."""


if __name__ == "__main__":
    print("\n".join([*lines(), "", *scale_lines()]))

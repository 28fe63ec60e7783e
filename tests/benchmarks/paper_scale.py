"""What the paper's models take: the table of docs/reproduce.md.

python -m tests.benchmarks.paper_scale prints it. Nothing is measured; a test holds the page to it.
"""

from pathlib import Path

from txlbench.config.accelerators import UTILISATION, accelerators_named
from txlbench.reporting.table import compact
from txlbench.runs.failure import readable
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.plan_record import PlanEntry, describe_plan

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


if __name__ == "__main__":
    print("\n".join(lines()))

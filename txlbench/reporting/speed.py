"""Speeds as tables: of `speed`, ways of reading by attention length, and of `bench`, workloads."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from txlbench.records.finding_schema import (
    BenchMachine,
    BenchRecord,
    BenchResult,
    EarlierBench,
    SpeedRecord,
    SpeedResult,
    Spread,
)
from txlbench.reporting.table import EMPTY, Column, Table


def short_source(record: SpeedRecord | BenchRecord) -> str:
    """One line for the foot of a figure."""
    commit = record.commit or "unknown"
    if isinstance(record, BenchRecord):
        return f"bench  ·  commit {commit}  ·  {machine_of(record)}"
    how = f"{record.precision}, batch {record.batch_size}"
    return f"speed  ·  commit {commit[:9]}  ·  {machine_of(record)}, {how}"


def full_source(record: SpeedRecord | BenchRecord) -> str:
    """One line that names every model or the machine, the commit and the command."""
    if isinstance(record, BenchRecord):
        return f"{machine_of(record)}; {record.provenance}"
    models = "; ".join(
        f"{name}: {source.reference} ({source.parameters:,} parameters)"
        for name, source in record.models.items()
    )
    return f"Models {models}; {record.provenance}"


def machine_of(record: SpeedRecord | BenchRecord) -> str:
    """Processor or GPU, and threads."""
    if isinstance(record, SpeedRecord):
        return f"{record.machine} ({record.device}), {_threads(record.threads)}"
    return _where(record.machine)


def _where(machine: BenchMachine) -> str:
    threads = _threads(machine.threads)
    return f"{machine.processor}, {machine.device}, {threads}, torch {machine.torch}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"


def ways_of(record: SpeedRecord) -> dict[str, dict[int, SpeedResult]]:
    """Each way of reading a model, by its name, with its result at each attention length."""
    found: dict[str, dict[int, SpeedResult]] = {}
    for line in record.results:
        found.setdefault(_way(line), {})[line.attention_length] = line
    for line in record.results:
        # Segments as long as the attention are also those of a number timed elsewhere.
        if line.regime == "reuse" and _segments(line) in found:
            found[_segments(line)][line.attention_length] = line
    return {name: dict(sorted(lines.items())) for name, lines in found.items()}


def _way(line: SpeedResult) -> str:
    if line.regime == "window":
        return f"{line.model}, sliding window"
    if line.tgt_len == line.attention_length:
        return f"{line.model}, reuse, segments as long as the attention"
    return _segments(line)


def _segments(line: SpeedResult) -> str:
    return f"{line.model}, reuse, segments of {line.tgt_len}"


def published_speedups(record: SpeedRecord) -> dict[int, float]:
    """The paper's speedup by attention length, of the first model that has one."""
    found = [line for line in record.results if line.paper is not None]
    return {
        line.attention_length: float(line.paper or 0)
        for line in found
        if line.model == found[0].model
    }


def speed_table(record: SpeedRecord) -> Table:
    """Milliseconds a token, then how many times faster than the baseline's sliding window."""
    ways, paper = ways_of(record), published_speedups(record)
    more = bool(paper)

    def column(header: str, cells: list[str], last: str) -> Column:
        return Column(header, tuple([*cells, last][: len(cells) + more]), is_number=True)

    columns = [Column("model", (*ways, "paper (Table 9)")[: len(ways) + more])]
    for length in record.attention_lengths:
        found = [lines.get(length) for lines in ways.values()]
        cells = [EMPTY if line is None else _spread(line.seconds_per_token, 1000) for line in found]
        columns.append(column(f"ms a token, {length:,} keys", cells, EMPTY))
    for length in record.attention_lengths:
        found = [lines.get(length) for lines in ways.values()]
        cells = [EMPTY if line is None else _spread(line.speedup, 1) for line in found]
        published = f"{paper[length]:,.0f}" if length in paper else EMPTY
        columns.append(column(f"faster, {length:,} keys", cells, published))
    footer = tuple(_explanations(record))
    return Table(tuple(columns), footer, full_source(record), "Speed of evaluation")


def _explanations(record: SpeedRecord) -> Iterator[str]:
    """How the numbers were obtained."""
    yield (
        f"Time of one new token in evaluation, median of {record.rounds} timings by turns "
        f"after {record.warm_up} that are not counted, quartiles in brackets: "
        f"{machine_of(record)}, PyTorch {record.torch}, {record.precision}, "
        f"batch {record.batch_size}."
    )
    yield (
        f"Faster: how many times, than the sliding window of {record.baseline}, which reads the "
        "whole window anew for each token (stride 1). Reuse: segments beside a full memory "
        "of that many keys."
    )


def _spread(summary: Spread, unit: float) -> str:
    """Median and quartiles to three digits."""
    numbers = (summary.median, summary.lower_quartile, summary.upper_quartile)
    median, low, high = (three_digits(unit * number) for number in numbers)
    return median if low == high else f"{median} ({low} to {high})"


def three_digits(value: float) -> str:
    """`value` with three significant digits, or without decimals from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed_lines(record: SpeedRecord) -> Iterator[Mapping[str, object]]:
    """The lines of speed.csv: one a result, numbers in full."""
    for line in record.results:
        yield {
            "way": _way(line),
            "model": line.model,
            "regime": line.regime,
            "attention_length": line.attention_length,
            "tgt_len": line.tgt_len,
            **{f"seconds_{name}": value for name, value in line.seconds_per_token},
            **{f"speedup_{name}": value for name, value in line.speedup},
            "paper": line.paper,
            "device": record.device,
            "machine": record.machine,
            "threads": record.threads,
            "precision": record.precision,
            "batch_size": record.batch_size,
            "baseline": record.baseline,
            "commit": record.commit,
            "command": record.command,
        }


WORKS = {
    "train": "training",
    "eval": "streaming evaluation",
    "generate": "generation, a token at a time",
    "context_losses": "context losses",
}


def bench_table(record: BenchRecord) -> Table:
    """Medians and spreads, and times the last of the history; empty columns are left out."""
    results, against = record.results, record.history[-1] if record.history else None

    def column(header: str, cells: list[str]) -> Column:
        return Column(header, tuple(cells), is_number=True)

    columns = [
        Column("work", tuple(WORKS[result.work] for result in results)),
        Column("size", tuple(result.size for result in results)),
        Column("dtype", tuple(result.dtype for result in results)),
        Column("attention", tuple(result.attention or EMPTY for result in results)),
        column("memory", [f"{result.mem_len:,}" for result in results]),
        column("tokens/s", [f"{result.tokens_per_second.median:,.0f}" for result in results]),
        column("lowest", [f"{result.tokens_per_second.min:,.0f}" for result in results]),
        column("highest", [f"{result.tokens_per_second.max:,.0f}" for result in results]),
        column("share of matrix products", [_share(result) for result in results]),
        column(
            "peak memory", [f"{result.peak_memory_bytes / 2**20:,.0f} MiB" for result in results]
        ),
        column("times the other", [_times(result, against) for result in results]),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(_footer(record, against)), full_source(record), "Speed")


def history_table(record: BenchRecord) -> Table:
    """Tokens a second by commit, the oldest first, and how many times the first each has become."""
    measured = (*record.history, record.summary)
    medians = [[each.median(result) for each in measured] for result in record.results]
    columns = [Column("work", tuple(name_of(result) for result in record.results))]
    for number, each in enumerate(measured):
        cells = tuple(EMPTY if row[number] is None else f"{row[number]:,.0f}" for row in medians)
        columns.append(Column(_commit(each.commit), cells, is_number=True))
    known = [[value for value in row if value is not None] for row in medians]
    times = tuple(f"{row[-1] / row[0]:.2f}" if len(row) > 1 else EMPTY for row in known)
    columns.append(Column("times the first", times, is_number=True))
    return Table(tuple(columns), tuple(map(_when, measured)), full_source(record), "By commit")


def _commit(commit: str | None) -> str:
    """Nine digits, and the + of a checkout that was edited."""
    return "unknown" if commit is None else f"{commit[:9]}{'+' * commit.endswith('+')}"


def _when(measured: EarlierBench) -> str:
    day = "unknown day" if measured.time is None else f"{_utc(measured.time):%Y-%m-%d %H:%M} UTC"
    where, rates = _where(measured.machine), _rates(measured.matmul_gflops)
    return f"{_commit(measured.commit)}: {day}, {where}, matrix products {rates} GFLOP/s."


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _rates(matmul_gflops: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {rate:,.0f}" for name, rate in matmul_gflops.items())


def name_of(result: BenchResult) -> str:
    """What a workload is called where there is no column for each property."""
    memory = f", M {result.mem_len:,}" if result.work == "generate" else ""
    return f"{WORKS[result.work].partition(',')[0]} {result.size} {result.dtype}{memory}"


def _footer(record: BenchRecord, against: EarlierBench | None) -> list[str]:
    rates = _rates(record.matmul_gflops)
    contexts = record.contexts
    lines = [
        f"Median, lowest and highest of {record.rounds} repetitions after two that warm "
        "up. Peak memory: of the whole process, PyTorch included.",
        f"Matrix products of this machine, measured between the repetitions: {rates} GFLOP/s. "
        "Share: necessary FLOPs (each projection once a new token, keys and values of the memory "
        "once a step in training, attention over M + (L + 1) / 2 keys, backward twice the "
        "forward) a second over that.",
        f"Context losses: tokens scored a second, each at {len(contexts)} contexts from "
        f"{contexts[0]} to {contexts[-1]}.",
    ]
    if against is not None:
        lines.append(f"The other: commit {against.commit or 'unknown'}, {_where(against.machine)}.")
    return lines


def _share(result: BenchResult) -> str:
    share = result.matmul_share
    return EMPTY if share is None else f"{100 * share:.1f} %"


def _times(result: BenchResult, against: EarlierBench | None) -> str:
    other = against and against.median(result)
    return EMPTY if not other else f"{result.tokens_per_second.median / other:.2f}"


def bench_lines(record: BenchRecord) -> Iterator[Mapping[str, object]]:
    """The lines of bench.csv: one a workload, numbers in full."""
    for result in record.results:
        yield {
            **{name: value for name, value in result if name != "tokens_per_second"},
            **{f"tokens_per_second_{name}": value for name, value in result.tokens_per_second},
        }

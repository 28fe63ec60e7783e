"""Everything that is shown of a finding: CSV, Markdown, LaTeX and figures beside its JSON file."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.attention_schema import AttentionRecord
from txlbench.records.context_schema import ContextGroup, ContextRecord
from txlbench.records.experiment_directory import FINDINGS, find_experiments
from txlbench.records.finding_schema import (
    BenchRecord,
    Finding,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
    read_finding,
)
from txlbench.records.probe_schema import ProbeRecord
from txlbench.reporting import (
    attention_report,
    context,
    context_page,
    context_tables,
    probes,
    recl,
    speed,
    truth,
)
from txlbench.reporting.figures import (
    attention_maps,
    context_curves,
    finding_figures,
    probe_curves,
    recl_curves,
    token_credit,
)
from txlbench.reporting.figures.style import (
    Drawing,
    Look,
    Palette,
    as_png,
    style,
    write_figure,
)
from txlbench.reporting.table import Table, latex, markdown, plain_text


@dataclass(frozen=True)
class FindingReport:
    """The files that were written, and the main table as plain text for a terminal."""

    paths: tuple[Path, ...]
    text: str


@dataclass(frozen=True)
class Presentation:
    """What is shown of one finding; also the source that its figures name.

    Attributes:
        short: where it comes from, in a line for the foot of a figure.
        tables: of the Markdown page, the main one first; empty ones are left out.
        lines: of the CSV file, numbers in full.
        figures: what draws each, by file name.
        footer: below the main table on a terminal, if less is said there.
        picture: Markdown below the main table.
        html: makes a page of HTML from title and PNG of each figure.
    """

    short: str
    tables: tuple[Table, ...]
    lines: Iterable[Mapping[str, object]]
    figures: Mapping[str, Callable[[], Drawing | None]]
    footer: tuple[str, ...] | None = None
    picture: str = ""
    html: Callable[[Sequence[tuple[str, bytes]]], str] | None = None

    @property
    def full(self) -> str:
        """Where it comes from, with everything named."""
        return self.tables[0].source

    @property
    def page(self) -> str:
        """All tables as Markdown."""
        main, *others = [
            f"# {table.title}\n\n{markdown(table)}" for table in self.tables if table.rows
        ]
        return "\n".join([main, *filter(None, [self.picture]), *others])

    @property
    def text(self) -> str:
        """The main table as plain text."""
        table = self.tables[0]
        if self.footer is not None:
            table = replace(table, footer=self.footer, source=self.short)
        return plain_text(table)


def report_finding(
    path: Path, command: str, look: Look | None = None, against: Path | None = None
) -> FindingReport:
    """Writes tables and figures beside the finding `path`.

    Args:
        command: what the user typed, which tables and figures name after what measured it.
        against: another bench.json, by whose speeds those of a bench.json are divided.

    Raises:
        UserError: if a file cannot be read or does not fit.
    """
    record = read_finding(path, FINDINGS[path.name])
    commands = dict.fromkeys(each for each in (record.command, command) if each)
    record = record.model_copy(update={"command": "; then ".join(commands)})
    other = None if against is None else read_finding(against, BenchRecord)
    try:
        return _write(path.with_suffix(""), _present(record, path.parent, other), look or Look())
    except (UserError, OSError):
        raise
    except Exception as error:  # of many kinds, from values that fit singly but not together
        kind = type(error).__name__
        raise UserError(f"{path}: damaged ({kind})", "restore it, or run the verb again") from error


def _write(stem: Path, shown: Presentation, look: Look) -> FindingReport:
    texts = {"csv": _csv(shown.lines), "md": shown.page, "tex": latex(shown.tables[0])}
    paths = []
    for suffix, text in texts.items():
        paths.append(stem.with_suffix(f".{suffix}"))
        write_text(paths[-1], text)
    images = []
    with style(look.width):
        for name, draw in shown.figures.items():
            drawing = draw()
            files = write_figure(drawing, stem.parent / "figures" / name, shown, look)
            if drawing is not None and shown.html is not None:
                written = next((file.read_bytes() for file in files if file.suffix == ".png"), None)
                images.append((drawing.title, written or as_png(drawing)))
            paths += files
    if shown.html is not None:
        paths.insert(0, stem.with_suffix(".html"))
        write_text(paths[0], shown.html(images))
    return FindingReport(tuple(paths), shown.text)


def _csv(lines: Iterable[Mapping[str, object]]) -> str:
    """One line each below their keys; None is empty. Without pandas, which takes long to load."""
    rows = list(lines)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def model_palette(models: Iterable[str], directory: Path) -> Palette:
    """The colours that models have in the figures of the experiment beside `directory`.

    Of several experiments the one counts that has the most of the models.
    """
    wanted = list(dict.fromkeys(models))
    known: tuple[str, ...] = ()
    for experiment in find_experiments(directory.parent):
        with contextlib.suppress(UserError):
            labels = tuple(line.label for line in experiment.read_spec().lines)
            known = max(known, labels, key=lambda each: len(set(each) & set(wanted)))
    if not set(known) & set(wanted):
        return Palette(tuple(wanted))
    return Palette((*known, *(model for model in wanted if model not in known)))


def _present(record: Finding, directory: Path, against: BenchRecord | None) -> Presentation:
    match record:
        case ReclRecord():
            return _recl(record, directory)
        case ContextRecord():
            return _context(record, directory)
        case ProbeRecord():
            return _probe(record, directory)
        case AttentionRecord():
            return _attention(record)
        case TruthRecord():
            return _truth(record, directory)
        case SpeedRecord():
            return _speed(record, directory)
        case BenchRecord():
            return _bench(record, against)
    raise AssertionError(record)


def _recl(record: ReclRecord, directory: Path) -> Presentation:
    palette = model_palette(record.models, directory)
    figures = {"recl_gain": recl_curves.draw_gains, "recl_loss": recl_curves.draw_losses}
    return Presentation(
        short=recl.short_source(record),
        tables=(
            recl.recl_table(record),
            recl.sensitivity_table(record),
            recl.subgroup_table(record),
        ),
        lines=recl.recl_lines(record),
        figures={
            f"{name}-{group.name}".rstrip("-"): partial(draw, record, group, palette)
            for name, draw in figures.items()
            for group in record.named_groups()
        },
        footer=tuple(recl.explanations(record)),
    )


def _context(record: ContextRecord, directory: Path) -> Presentation:
    palette = model_palette(record.models, directory)
    drawn: Mapping[str, Callable[[ContextRecord, ContextGroup, Palette], Drawing | None]] = {
        "context_loss": context_curves.draw_curves,
        "context_classes": token_credit.draw_classes,
        "context_text": token_credit.draw_text,
        "context_tokens": token_credit.draw_view,
        "context_harm": context_curves.draw_harm,
        "context_information": context_curves.draw_information,
    }
    figures: dict[str, Callable[[], Drawing | None]] = {
        f"{name}-{group.name}".rstrip("-"): partial(draw, record, group, palette)
        for name, draw in drawn.items()
        for group in record.named_groups()
    }
    tables = (context.context_table(record), *context_tables.measure_tables(record))
    if record.recl is not None:
        of_recl = _recl(record.recl, directory)
        tables, figures = (*tables, *of_recl.tables), figures | dict(of_recl.figures)
    return Presentation(
        short=recl.short_source(record),
        tables=tables,
        lines=context.context_lines(record),
        figures=figures,
        html=lambda images: context_page.context_page(record, images, tables),
    )


def _probe(record: ProbeRecord, directory: Path) -> Presentation:
    palette = model_palette(record.models, directory)
    return Presentation(
        short=probes.short_source(record),
        tables=probes.probe_tables(record),
        lines=probes.probe_lines(record),
        figures={
            "probe_recall": partial(probe_curves.draw_recall, record, palette),
            "probe_far": partial(probe_curves.draw_far, record, palette),
            "probe_cache": partial(probe_curves.draw_cache, record, palette),
        },
        html=lambda images: probes.probe_page(record, images),
    )


def _attention(record: AttentionRecord) -> Presentation:
    drawn: Mapping[str, Callable[[AttentionRecord], Drawing | None]] = {
        "attention_profile": attention_maps.draw_profiles,
        "attention_terms": attention_maps.draw_terms,
        "attention_scale": attention_maps.draw_scales,
        "attention_heads": attention_maps.draw_rows,
        "attention_text": attention_maps.draw_text,
    }
    return Presentation(
        short=attention_report.short_source(record),
        tables=attention_report.attention_tables(record),
        lines=attention_report.attention_lines(record),
        figures={name: partial(draw, record) for name, draw in drawn.items()},
        html=lambda images: attention_report.attention_page(record, images),
    )


def _truth(record: TruthRecord, directory: Path) -> Presentation:
    palette = model_palette(map(finding_figures.truth_name, record.rows), directory)
    return Presentation(
        short=truth.short_source(record),
        tables=(truth.truth_table(record), truth.context_table(record)),
        lines=truth.truth_lines(record),
        figures={"truth": partial(finding_figures.draw_truth, record, palette)},
        picture="![Measured and known loss by context](figures/truth.png)\n",
    )


def _speed(record: SpeedRecord, directory: Path) -> Presentation:
    palette = model_palette((line.model for line in record.results), directory)
    return Presentation(
        short=speed.short_source(record),
        tables=(speed.speed_table(record),),
        lines=speed.speed_lines(record),
        figures={"speed": partial(finding_figures.draw_speed, record, palette)},
    )


def _bench(record: BenchRecord, against: BenchRecord | None) -> Presentation:
    return Presentation(
        short=speed.short_source(record),
        tables=(speed.bench_table(record, against),),
        lines=speed.bench_lines(record),
        figures={"bench": partial(finding_figures.draw_bench, record)},
    )

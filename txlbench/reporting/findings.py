"""Everything that is shown of a finding: a page, CSV, Markdown, LaTeX and figures beside its JSON
file."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from txlbench.records.sample_schema import SamplesRecord
from txlbench.reporting import (
    attention_report,
    context,
    context_page,
    context_tables,
    probes,
    recl,
    samples,
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
    style,
    write_figure,
)
from txlbench.reporting.pages import finding_words
from txlbench.reporting.pages.page import Answer, Page, PagePart, render, tables_of
from txlbench.reporting.pages.pictures import picture
from txlbench.reporting.pages.result_index import refresh_index
from txlbench.reporting.table import Table, enumerated, latex, markdown, plain_text


@dataclass(frozen=True)
class FindingReport:
    """The files that were written, and the main table as plain text for a terminal."""

    paths: tuple[Path, ...]
    text: str


@dataclass(frozen=True)
class Presentation:
    """What is shown of one finding; also the source that its figures name.

    Attributes:
        title: of the page's window.
        heading: the question that is answered.
        lead: what was measured, in a line.
        answers: in words, before everything else.
        short: where it comes from, in a line for the foot of a figure.
        tables: the main one first; empty ones are left out.
        lines: of the CSV file, numbers in full.
        figures: what draws each, by file name; the page's first one stands beside the answers.
        footer: below the main table on a terminal, if less is said there.
        picture: Markdown below the main table.
        parts: further parts of the page, before its tables.
    """

    title: str
    heading: str
    lead: str
    answers: tuple[Answer, ...]
    short: str
    tables: tuple[Table, ...]
    lines: Iterable[Mapping[str, object]]
    figures: Mapping[str, Callable[[], Drawing | None]]
    footer: tuple[str, ...] | None = None
    picture: str = ""
    parts: tuple[PagePart, ...] = ()

    @property
    def full(self) -> str:
        """Where it comes from, with everything named."""
        return self.tables[0].source

    @property
    def markdown(self) -> str:
        """All tables."""
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

    def page(self) -> Page:
        """Draws the figures anew, as a page needs them."""
        drawn = (picture(name, draw, self) for name, draw in self.figures.items())
        pictures = tuple(each for each in drawn if each is not None)
        return Page(
            title=self.title,
            heading=self.heading,
            lead=self.lead,
            answers=self.answers,
            parts=(
                PagePart("Figures", pictures=pictures[1:]),
                *self.parts,
                *(
                    PagePart(table.title, table.footer, tables=(replace(table, footer=()),))
                    for table in tables_of(*self.tables)
                ),
            ),
            source=self.full,
            picture=pictures[0] if pictures else None,
        )


def report_finding(path: Path, command: str, look: Look | None = None) -> FindingReport:
    """Writes tables and figures beside the finding `path`.

    Args:
        command: what the user typed, which tables and figures name after what measured it.

    Raises:
        UserError: if a file cannot be read or does not fit.
    """
    record = _commanded(read_finding(path, FINDINGS[path.name]), command)
    with named_damage(path):
        shown = present(record, path.parent)
        return _write(path.with_suffix(""), shown, look or Look())


@contextlib.contextmanager
def named_damage(path: Path) -> Iterator[None]:
    """Raises what comes of values that fit singly, but not together, as a UserError."""
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UserError(f"{path}: damaged ({kind})", "restore it, or run the verb again") from error


def write_finding_page(path: Path, command: str) -> Path:
    """Writes the page of the finding `path` only; see `report_finding`."""
    record = _commanded(read_finding(path, FINDINGS[path.name]), command)
    with named_damage(path):
        return _write_page(path.with_suffix(""), present(record, path.parent))


def _commanded(record: Finding, command: str) -> Finding:
    """The record, in which `command` stands after what measured it."""
    commands = dict.fromkeys(each for each in (record.command, command) if each)
    return record.model_copy(update={"command": "; then ".join(commands)})


def _write(stem: Path, shown: Presentation, look: Look) -> FindingReport:
    texts = {"csv": _csv(shown.lines), "md": shown.markdown, "tex": latex(shown.tables[0])}
    paths = []
    for suffix, text in texts.items():
        paths.append(stem.with_suffix(f".{suffix}"))
        write_text(paths[-1], text)
    with style(look.width):
        for name, draw in shown.figures.items():
            paths += write_figure(draw(), stem.parent / "figures" / name, shown, look)
    return FindingReport((_write_page(stem, shown), *paths), shown.text)


def _write_page(stem: Path, shown: Presentation) -> Path:
    """The page, and the index that lists it."""
    path = stem.with_suffix(".html")
    write_text(path, render(shown.page()))
    refresh_index(path.parent.parent)
    return path


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


def present(record: Finding, directory: Path) -> Presentation:
    """What is shown of a finding in `directory`."""
    match record:
        case ReclRecord():
            return _recl(record, directory)
        case ContextRecord():
            return _context(record, directory)
        case ProbeRecord():
            return _probe(record, directory)
        case AttentionRecord():
            return _attention(record)
        case SamplesRecord():
            return _samples(record)
        case TruthRecord():
            return _truth(record, directory)
        case SpeedRecord():
            return _speed(record, directory)
        case BenchRecord():
            return _bench(record)
    raise AssertionError(record)


def _recl(record: ReclRecord, directory: Path) -> Presentation:
    palette = model_palette(record.models, directory)
    figures = {"recl_gain": recl_curves.draw_gains, "recl_loss": recl_curves.draw_losses}
    return Presentation(
        title=f"RECL of {enumerated(record.models)}",
        heading="How far back do these models use context?",
        lead=finding_words.recl_lead(record),
        answers=finding_words.recl_answers(record),
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
        title=f"Context of {enumerated(record.models)}",
        heading="How much context do these models use?",
        lead=context_page.context_lead(record),
        answers=context_page.context_answers(record),
        short=recl.short_source(record),
        tables=tables,
        lines=context.context_lines(record),
        figures=figures,
        parts=tuple(context_page.coloured_texts(record)),
    )


def _probe(record: ProbeRecord, directory: Path) -> Presentation:
    palette = model_palette(record.models, directory)
    return Presentation(
        title=f"Probes of {enumerated(record.models)}",
        heading="What do these models do with far context?",
        lead="Each model was read once more over changed inputs. In brackets: 95 % intervals.",
        answers=probes.probe_answers(record),
        short=probes.short_source(record),
        tables=probes.probe_tables(record),
        lines=probes.probe_lines(record),
        figures={
            "probe_recall": partial(probe_curves.draw_recall, record, palette),
            "probe_far": partial(probe_curves.draw_far, record, palette),
            "probe_cache": partial(probe_curves.draw_cache, record, palette),
        },
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
        title=f"Attention of {record.title}",
        heading=f"Where do the heads of {record.title} attend?",
        lead=next(iter(attention_report.explanations(record))),
        answers=attention_report.attention_answers(record),
        short=attention_report.short_source(record),
        tables=attention_report.attention_tables(record),
        lines=attention_report.attention_lines(record),
        figures={name: partial(draw, record) for name, draw in drawn.items()},
        parts=tuple(attention_report.coloured_texts(record)),
    )


def _samples(record: SamplesRecord) -> Presentation:
    return Presentation(
        title=f"Samples of {record.title}",
        heading=f"What does {record.title} write?",
        lead=next(iter(samples.explanations(record))),
        answers=samples.sample_answers(record),
        short=samples.short_source(record),
        tables=(samples.sample_table(record),),
        lines=samples.sample_lines(record),
        figures={},
        picture=samples.sample_markdown(record),
        parts=tuple(samples.sample_parts(record)),
    )


def _truth(record: TruthRecord, directory: Path) -> Presentation:
    palette = model_palette(map(finding_figures.truth_name, record.rows), directory)
    return Presentation(
        title=f"{directory.name}: measured against known",
        heading="Does RECL find the context that is known to be of use?",
        lead=f"{len(record.rows)} rows on the made corpus planted, whose least possible losses are "
        "known at every context.",
        answers=finding_words.truth_answers(record),
        short=truth.short_source(record),
        tables=(truth.truth_table(record), truth.context_table(record)),
        lines=truth.truth_lines(record),
        figures={"truth": partial(finding_figures.draw_truth, record, palette)},
        picture="![Measured and known loss by context](figures/truth.png)\n",
    )


def _speed(record: SpeedRecord, directory: Path) -> Presentation:
    palette = model_palette((line.model for line in record.results), directory)
    return Presentation(
        title=f"Speed of {enumerated(record.models)}",
        heading="How much faster is reading with cached state than a sliding window?",
        lead=f"{speed.machine_of(record)}, {record.precision}, batch {record.batch_size}; "
        f"medians of {record.rounds} timings, quartiles in brackets.",
        answers=finding_words.speed_answers(record),
        short=speed.short_source(record),
        tables=(speed.speed_table(record),),
        lines=speed.speed_lines(record),
        figures={"speed": partial(finding_figures.draw_speed, record, palette)},
    )


def _bench(record: BenchRecord) -> Presentation:
    history = (speed.history_table(record),) if record.history else ()
    return Presentation(
        title="Speed of this machine",
        heading="How fast is this machine?",
        lead=f"{speed.machine_of(record)}; medians of {record.rounds} repetitions, "
        "the lowest and the highest in brackets.",
        answers=finding_words.bench_answers(record),
        short=speed.short_source(record),
        tables=(speed.bench_table(record), *history),
        lines=speed.bench_lines(record),
        figures={"bench": partial(finding_figures.draw_bench, record)},
    )

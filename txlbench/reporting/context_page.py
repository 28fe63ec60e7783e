"""Pages of findings: words first, then figures and tables, in one file that needs no other."""

import base64
import html
from collections.abc import Iterable, Sequence
from string import Template

from txlbench.records.context_schema import ContextRecord, TokenView
from txlbench.reporting.context_words import Verdict, summary, verdicts
from txlbench.reporting.table import Table

STRONGEST = 1.0
"""Nats of credit at which the colour of a token is full."""
HELPED, HARMED = "0, 114, 178", "213, 94, 0"
"""Red, green and blue of tokens that context helped and harmed."""

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  margin: 0 auto; padding: 1.4rem 1.6rem 4rem; max-width: 1180px; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid #ddd; }
p.lead { margin: 0 0 1rem; color: #555; }
table { border-collapse: collapse; font-size: .86rem; }
.wide { overflow-x: auto; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; }
th { border-bottom: 1.5px solid #444; font-weight: 600; }
td { border-bottom: 1px solid #e4e4e4; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdicts { width: 100%; font-size: .93rem; table-layout: fixed; }
.verdicts td p { margin: 0 0 .3rem; }
.verdicts th:first-child { width: 13%; }
.verdicts td:first-child { font-weight: 600; overflow-wrap: anywhere; }
.verdicts td:last-child { color: #555; }
ul.notes { padding-left: 1.1rem; color: #555; font-size: .88rem; }
img { width: 820px; max-width: 100%; height: auto; display: block; margin: 2rem 0; }
.text { font: 15px/1.9 "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; border: 1px solid #e4e4e4; padding: .6rem .8rem; }
.text span { padding: .1rem 0; }
p.small { font-size: .82rem; color: #666; }
</style>
</head>
<body>
<h1>$heading</h1>
<p class="lead">$lead</p>
$verdicts
$summary
$figures
$text
$tables
<p class="small">$source</p>
</body>
</html>
""")


def context_page(
    record: ContextRecord, figures: Sequence[tuple[str, bytes]], tables: Iterable[Table]
) -> str:
    """The page as HTML, every text of the record escaped.

    Args:
        figures: title and PNG of each.
    """
    models = ", ".join(record.models)
    shown = [table for table in tables if table.rows]
    return PAGE.substitute(
        title=html.escape(f"Context of {models}"),
        heading="How much context do these models use?",
        lead=html.escape(_lead(record)),
        verdicts=_verdict_table(verdicts(record)),
        summary=_list(summary(record)),
        figures="\n".join(_figure(*each) for each in figures),
        text="\n".join(
            _coloured(group.view, model)
            for group in record.named_groups()
            if group.view is not None and group.view.is_text
            for model in group.models
        ),
        tables="\n".join(map(_table, shown)),
        source=html.escape(shown[0].source if shown else record.provenance),
    )


def finding_page(
    *,
    title: str,
    heading: str,
    lead: str,
    notes: Iterable[str],
    figures: Sequence[tuple[str, bytes]],
    tables: Iterable[Table],
    source: str,
) -> str:
    """A page that begins with `notes` in words; every text is escaped.

    Args:
        figures: title and PNG of each.
    """
    return PAGE.substitute(
        title=html.escape(title),
        heading=html.escape(heading),
        lead=html.escape(lead),
        verdicts="",
        summary=_list(notes),
        figures="\n".join(_figure(*each) for each in figures),
        text="",
        tables="\n".join(_table(table) for table in tables if table.rows),
        source=html.escape(source),
    )


def _lead(record: ContextRecord) -> str:
    """What was measured, in a line."""
    tokens = " and ".join(f"{group.tokens:,}" for group in record.groups)
    places = sorted({s.split for s in record.models.values() if s.split})
    corpora = {str(s.settings["corpus"]) for s in record.models.values() if "corpus" in s.settings}
    where = f" of the split {' and '.join(places)}" if places else ""
    where += f" of {' and '.join(sorted(corpora))}" if corpora else ""
    return (
        f"Each of {tokens} {record.targets}{where} was predicted from exactly c "
        f"{record.counted_in} before it, for {len(record.contexts)} contexts c from "
        f"{record.contexts[0]} to {record.contexts[-1]}. "
        f"In brackets: 95 % intervals, of these {record.targets} only."
    )


def _verdict_table(found: Sequence[Verdict]) -> str:
    head = "".join(
        f"<th>{title}</th>"
        for title in ("Model", "How much context", "What for", "What is not resolved")
    )
    rows = []
    for verdict in found:
        name = f"{verdict.group}: {verdict.model}" if verdict.group else verdict.model
        cells = [_paragraphs([name]), *map(_paragraphs, _cells(verdict))]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<table class="verdicts"><tr>{head}</tr>{"".join(rows)}</table>'


def _cells(verdict: Verdict) -> tuple[tuple[str, ...], ...]:
    return verdict.amount, verdict.purpose, verdict.unresolved


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _figure(title: str, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    name = html.escape(title, quote=True)
    return f'<img alt="{name}" src="data:image/png;base64,{data}">'


def _table(table: Table) -> str:
    numbers = [' class="number"' if column.is_number else "" for column in table.columns]
    head = "".join(
        f"<th{number}>{html.escape(text)}</th>"
        for number, text in zip(numbers, table.header, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{number}>{html.escape(cell)}</td>"
            for number, cell in zip(numbers, cells, strict=True)
        )
        + "</tr>"
        for cells in table.rows
    )
    body = f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'
    return f"<h2>{html.escape(table.title)}</h2>\n{body}\n{_list(table.footer)}"


def _coloured(view: TokenView, model: str) -> str:
    """The span as text, each token as blue as context helped it, or as orange as it harmed."""
    parts = []
    for token, position, credits, loss in zip(
        view.tokens, view.positions, view.credit[model], view.losses[model], strict=True
    ):
        total = sum(credits)
        colour = HELPED if total > 0 else HARMED
        depth = min(1.0, abs(total) / STRONGEST) * 0.75
        about = f"token {position:,}: loss {loss:.3f} nats"
        for low, high, credit in zip(view.contexts, view.contexts[1:], credits, strict=False):
            about += f"\n{low + 1} to {high} back: {credit:+.3f}"
        parts.append(
            f'<span style="background: rgba({colour}, {depth:.2f})" '
            f'title="{html.escape(about, quote=True)}">{html.escape(token)}</span>'
        )
    first, last = view.contexts[0], view.contexts[-1]
    return (
        f"<h2>{html.escape(f'Which tokens context helped: {model}')}</h2>\n"
        f'<div class="text">{"".join(parts)}</div>\n<p class="small">Blue: {last} tokens of '
        f"context instead of {first} lower the loss; orange: they raise it; full colour from "
        f"{STRONGEST:g} nat. Rest the pointer on a token to see which "
        "stretch did.</p>"
    )

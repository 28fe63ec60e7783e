"""Tables, words and the page of `context`, of losses with a known truth."""

import csv
import io
import re
from dataclasses import replace

import pytest

from tests.reporting.context_records import measured, save, write_record
from tests.reporting.pages.parsed import Parsed
from txlbench.commands.context import ContextRequest, measure_context
from txlbench.records.context_schema import Interval, Missing
from txlbench.reporting.context import context_lines, context_table, in_unit, with_interval
from txlbench.reporting.context_page import coloured_texts, context_answers
from txlbench.reporting.context_tables import measure_tables
from txlbench.reporting.context_words import summary, verdicts
from txlbench.reporting.findings import present, report_finding
from txlbench.reporting.pages.page import render


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("groups"), groups=(("XL", "LSTM"), ("XL",)))


def test_the_main_table_has_a_line_a_model(record):
    table = context_table(record)
    cells = {line[table.header.index("model")]: line for line in table.rows}
    assert set(cells) == {"XL", "LSTM"}
    column = table.header.index("power law beta")
    assert re.fullmatch(r"0\.\d\d \[0\.\d\d, 0\.\d\d\]", cells["XL"][column])
    assert cells["XL"][table.header.index("LongPPL")] == "not available"
    assert any(line.startswith("ICL score: not available: needs") for line in table.footer)


def test_each_measure_has_a_table(record, groups):
    titles = [table.title for table in measure_tables(record) if table.rows]
    assert titles == [
        "Loss by context",
        "Classes of tokens",
        "LongPPL",
        "Net harm of context",
        "Power law of context",
        "Bipartite mutual information (L²M)",
        "V-information of each step",
    ]
    assert all("group" in table.header for table in measure_tables(groups))
    assert not any("group" in table.header for table in measure_tables(record))


def test_lines_hold_every_value_with_its_interval(record):
    lines = list(context_lines(record))
    assert {line["measure"] for line in lines} >= {
        *("ecl", "loss_nats", "harmed_share", "power_law_beta", "v_information_nats"),
        *("class_gain_nats", "key_share", "l2m_exponent", "l2m_nats_corrected"),
    }
    assert all(line["low"] <= line["value"] <= line["high"] for line in lines)


def test_words_say_how_much_what_for_and_what_is_not_resolved(record):
    found = {verdict.model: verdict for verdict in verdicts(record)}
    amount = " ".join(found["XL"].amount)
    assert re.search(r"\d+ \[\d+, \d+\] tokens: from there on", amount)
    assert "RECL over all tokens: " in amount
    assert re.search(r"From 4 to 32 its loss falls by 0\.\d+ \[0\.\d+, 0\.\d+\] bits", amount)
    assert re.search(r"power law \(beta 0\.\d\d .*128 tokens would save another", amount)
    assert found["XL"].purpose
    assert any(line.startswith("LongPPL: 0 key") for line in found["XL"].unresolved)
    lines = list(summary(record))
    assert lines[0].startswith("The group's best prediction still improves up to 32 tokens")
    assert "ICL score: not available: needs contexts 50 and 500." in lines


def test_groups_are_named(groups):
    assert [verdict.group for verdict in verdicts(groups)] == ["a", "a", "b"]
    assert any(line.startswith("Group b: ") for line in summary(groups))


def test_recl_is_that_of_the_own_group(groups):
    """Company changes it: XL stands in two groups."""
    table = context_table(groups)
    cells = [line[table.header.index("RECL r=1")] for line in table.rows]
    changed = groups.recl.groups[1].model_copy(
        update={
            "results": tuple(
                line.model_copy(update={"recl": 8, "recl_above_null": 8, "capped": False})
                for line in groups.recl.groups[1].results
            )
        }
    )
    recl = groups.recl.model_copy(update={"groups": (groups.recl.groups[0], changed)})
    table = context_table(groups.model_copy(update={"recl": recl}))
    again = [line[table.header.index("RECL r=1")] for line in table.rows]
    assert again == [*cells[:2], "8"]


def test_noise_is_not_called_a_purpose(tmp_path):
    """The same losses at every context, but for noise."""
    flat = [save(tmp_path / "flat.npz", 1.0, contexts=(4, 8, 16, 32), noise=0.5, seed=1)]
    (verdict,) = verdicts(measure_context(ContextRequest((tuple(flat),))))
    assert verdict.purpose == ("No class of tokens gains beyond the scatter of its tokens.",)
    assert verdict.unresolved[0].startswith("Whether 32 tokens are better than 4: ")


def test_a_model_that_can_use_no_more_is_said_so(tmp_path):
    name = save(tmp_path / "short.npz", contexts=(4, 8, 16), longest=4)
    (verdict,) = verdicts(measure_context(ContextRequest(((name,),))))
    assert verdict.amount == ("It can use no more than 4 tokens, and was measured from 4 on.",)
    assert verdict.purpose == ()


def test_no_cell_of_the_first_screen_is_left_without_a_word(tmp_path):
    """A file that knows no text, and whose every measure is resolved."""
    contexts = (4, 8, 16, 32, 50, 500)
    name = save(tmp_path / "bare.npz", 0.5, contexts, ids=None, noise=0.01)
    record = measure_context(ContextRequest(((name,),)))
    (verdict,) = verdicts(record)
    assert verdict.purpose[0] == "Not known: the text of the tokens is not known."
    resolved = [each.model_copy(update={"missing": ()}) for each in record.groups]
    (verdict,) = verdicts(record.model_copy(update={"groups": tuple(resolved)}))
    assert verdict.unresolved == ("Nothing of what was measured for it alone.",)


def test_the_page_begins_with_words(record, tmp_path):
    shown = replace(present(record, tmp_path), figures={})
    text = Parsed(render(shown.page())).text
    words = text.index("How much context do these models use?")
    assert words < text.index("Not resolved") < text.index("Loss by context")
    assert [answer.about for answer in context_answers(record)] == ["XL", "LSTM", ""]


def test_every_text_of_the_page_is_escaped(record, tmp_path):
    """Names, tokens and reasons come from files of strangers."""
    evil = "<script>alert('1')</script>\"&"
    text = record.model_dump_json(by_alias=True)
    named = type(record).model_validate_json(text.replace('"XL"', '"<script>XL"'))
    (group,) = named.groups
    view = group.view.model_copy(update={"tokens": (evil, *group.view.tokens[1:])})
    missing = (*group.missing, Missing(measure=evil, reason=evil))
    group = group.model_copy(update={"view": view, "missing": missing})
    named = named.model_copy(update={"groups": (group,), "command": evil})
    page = render(replace(present(named, tmp_path), figures={}).page())
    assert page.count("<script") == 1, "its own"
    assert evil in Parsed(page).text


def test_colours_of_tokens_say_how_context_changed_their_loss(record):
    section, _ = coloured_texts(record)
    (group,) = record.groups
    totals = [sum(credits) for credits in group.view.credit["XL"]]
    assert [span.colour for span in section.text] == [
        "0, 114, 178" if total > 0 else "213, 94, 0" for total in totals
    ]
    assert max(span.depth for span in section.text) <= 0.45


def test_files_that_are_written(tmp_path):
    folder = write_record(tmp_path)
    written = report_finding(folder / "context.json", "figures")
    names = {str(path.relative_to(folder)) for path in written.paths}
    assert {"context.html", "context.csv", "context.md", "context.tex"} <= names
    figures = ("loss", "classes", "tokens", "text", "harm", "information")
    assert {f"figures/context_{name}.png" for name in figures} <= names
    assert {"figures/recl_gain.png", "figures/recl_loss.png"} <= names
    assert (folder / "context.html").read_text().count("<figure>") == 8
    lines = list(csv.DictReader(io.StringIO((folder / "context.csv").read_text())))
    assert {line["model"] for line in lines} == {"XL", "LSTM", ""}
    assert "RECL" in written.text


def test_bits_are_nats_by_ln_2():
    found = in_unit(Interval(value=0.6931471805599453, low=None, high=None), "bpc")
    assert with_interval(found) == "1.000"
    assert with_interval(in_unit(Interval(value=1, low=0.5, high=2), "ppl")) == (
        "1.000 [0.500, 2.000]"
    )

"""What is shown of samples: texts side by side, losses in the unit, what teacher forcing draws."""

import pytest

from tests.reporting.sample_records import record, write_record
from txlbench.reporting import samples
from txlbench.reporting.findings import report_finding
from txlbench.tracking.values import title_of_finding, values_of_finding

RECORD = record()


def test_a_line_for_each_sample():
    table = samples.sample_table(RECORD)
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert first["place"] == "1,234"
    assert first["bpc of the sample"] == "1.443"
    assert second["bpc of the reference"] == "5.771"
    assert second["context ends in"] == f"…{'x' * 80}"
    assert [first["agreeing"], second["agreeing"]] == ["3", "2"]
    assert table.footer[0].startswith("Contexts: 9 consecutive tokens of test of mine")
    assert (
        "from the 40 likeliest tokens, renormalised, at temperature 1, mem_len 16."
        in (table.footer[1])
    )


def test_the_number_format_is_told_where_it_is_not_fp32():
    (_, drawn, _) = samples.explanations(record(precision="bf16"))
    assert drawn.endswith("at temperature 1, mem_len 16, in bf16.")
    assert RECORD.precision is None, "files of before have none"


def test_tokens_that_differ_are_warned_of():
    assert RECORD.warnings == ("1 tokens differ from those that teacher forcing draws (rounding?)",)
    same = RECORD.samples[:1]
    assert record(samples=same).warnings == ()


def test_the_page_has_the_texts_side_by_side(tmp_path):
    write_record(tmp_path)
    report_finding(tmp_path / "samples.json", "typed")
    page = (tmp_path / "samples.html").read_text()
    assert "<p>it is &lt;b&gt;</p>" in page
    assert "<p> so &amp; so</p>" in page
    assert page.count('class="passages"') == 2
    assert "<small>from token 1,234 of the split</small>" in page
    assert "draws 5 of the 6 tokens again" in page
    assert ">     it is <b>" in (tmp_path / "samples.md").read_text()
    assert "it is <b>" in (tmp_path / "samples.csv").read_text()


def test_a_prompt_has_no_reference():
    alone = RECORD.samples[0].model_copy(
        update={"place": None, "reference": "", "reference_loss": None}
    )
    made = record(samples=(alone,), context_tokens=None)
    (part,) = samples.sample_parts(made)
    assert (part.title, len(part.passages)) == ("Sample 1", 2)
    assert samples.sample_table(made).header == [
        "sample", "context ends in", "bpc of the sample", "agreeing",
    ]  # fmt: skip
    (answer,) = samples.sample_answers(made)
    assert answer.remarks[0].sentences == ("Its own continuations cost the model 1.443 bpc.",)
    (answer,) = samples.sample_answers(RECORD)
    assert answer.remarks[0].sentences[0].endswith(" 2.164 bpc, the real ones 4.328 bpc.")


def test_numbers_go_to_mlflow_by_sample():
    values = {(each.name, each.step): each.value for each in values_of_finding(RECORD)}
    assert values["sample_nats/XL", 2] == pytest.approx(2.0)
    assert values["reference_nats/XL", 1] == pytest.approx(2.0)
    assert title_of_finding("samples", RECORD, "x") == "samples of XL"

"""What is shown of attention says what the record holds."""

import pytest

from tests.reporting.attention_records import record
from txlbench.reporting import attention_report
from txlbench.tracking.values import title_of_finding, values_of_finding

RECORD = record()


def cells(table):
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_a_line_for_each_layer_head_and_term():
    layers, heads, terms = map(cells, attention_report.attention_tables(RECORD))
    assert [row["layer"] for row in layers] == ["1", "2"]
    assert layers[0]["mean distance"] == "2.50"
    assert layers[0]["of its heads"] == "2.0 to 3.0"
    assert layers[1]["scale of (b)"] == "1.30"
    assert "on the first key" not in layers[0]
    assert heads[1]["head"] == "1.2"
    assert heads[1]["mean distance"] == "3.00 [1.50, 3.50]"
    assert heads[0]["keys alike"] == "3.0"
    assert len(terms) == 8
    assert terms[3]["term"] == "(d) bias and distance"
    assert terms[3]["at one distance"] == "0.000"


def test_words_say_which_heads_and_what_terms_do():
    first, second, sharp = attention_report.sentences(RECORD)
    terms = list(attention_report.term_sentences(RECORD))
    assert first.startswith("Head 1.2 looks farthest back, 3.0 [1.5, 3.5] tokens on average")
    assert "largest in layer 1 (2.5 tokens)" in second
    assert "that of 3.0 keys" in sharp
    assert terms[3].endswith("; distance alone decides it.")
    assert terms[0].endswith("at one distance it varies by 0.50.")


def test_below_the_table_stand_the_checks():
    how, rows = attention_report.explanations(RECORD)
    assert how.startswith("1,000 tokens of test of mine, each sees 8 keys, itself included; ")
    assert rows.startswith("Rows of attention sum to one within 2e-07; 0 at most lies")
    odd = RECORD.model_copy(
        update={"silent_layers": (2,), "apart": 1, "regime": "windows", "keys": (6, 8)}
    )
    how, _, first, silent = attention_report.explanations(odd)
    assert "each sees 6 to 8 keys" in how
    assert first.startswith("Distances leave out the first token of each window")
    assert (
        "0% of attention rests on the first token of each window"
        in list(attention_report.sentences(odd))[-1]
    )
    assert silent == "Layers 2 give no attention."


def test_the_csv_and_mlflow_have_every_number():
    lines = list(attention_report.attention_lines(RECORD))
    assert len(lines) == 4 * 3 + 16 * 2
    far = [line for line in lines if line["measure"] == "mean_distance" and line["head"] == 2]
    assert [line["value"] for line in far] == [3.0, 2.0]
    values = {(each.name, each.step): each.value for each in values_of_finding(RECORD)}
    assert values["attention_distance/XL", 1] == pytest.approx(2.5)
    assert values["score_scale_b/XL", 2] == pytest.approx(1.3)
    assert title_of_finding("attention", RECORD, "x") == "attention of XL"


def test_the_strongest_fifth_has_one_key_at_least():
    assert attention_report.strongest([0.1, 0.5, 0.4]) == [1]
    assert attention_report.strongest([0.2, 0.1, 0.3, 0.3, 0, 0, 0, 0, 0, 0.1]) == [2, 3]

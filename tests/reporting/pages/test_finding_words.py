"""The answers of findings: numbers with their intervals, what differs and what does not."""

import json

import pytest

from tests.reporting import speed_records, test_truth
from tests.reporting.recl_records import write_record
from txlbench.records.finding_schema import ReclRecord, SpeedRecord, TruthRecord, read_finding
from txlbench.reporting.pages.finding_words import (
    recl_answers,
    share_in_words,
    speed_answers,
    truth_answers,
)
from txlbench.reporting.pages.page import Remark


@pytest.fixture(scope="module")
def recl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recl")
    groups = (("XL", "LSTM"), ("Vanilla",))
    write_record(folder, groups=groups, paper={("XL", 1.0): 900})
    return read_finding(folder / "recl.json", ReclRecord)


def test_recl_of_each_model_and_share(recl):
    first, second = recl_answers(recl)
    assert (first.about, second.about) == ("Group a", "Group b")
    names = [remark.name for remark in first.remarks]
    assert names[0] == "On all tokens"
    assert names[1:3] == [f"On the hardest {share} % of tokens" for share in (50, 10)]
    line = recl.groups[0].result("XL", 1.0)
    low, high = line.interval
    assert first.remarks[0].sentences[0] == (
        f"XL: ≥{line.recl} tokens [{low}, {high}]; above the null {line.recl_above_null} "
        f"[{line.interval_above_null[0]}, {line.interval_above_null[1]}]; the paper says 900."
    )


def test_models_whose_intervals_lie_apart_differ(recl):
    (group, _) = recl.groups

    def answer(xl, lstm):
        intervals = {"XL": xl, "LSTM": lstm}
        lines = tuple(
            line.model_copy(
                update={
                    "interval_above_null": intervals[line.model],
                    "recl_above_null": intervals[line.model][0],
                }
            )
            for line in group.results
        )
        changed = recl.model_copy(update={"groups": (group.model_copy(update={"results": lines}),)})
        return {remark.name: remark.sentences[0] for remark in recl_answers(changed)[0].remarks}

    apart = answer((300, 320), (200, 250))
    assert apart["Differ"] == "XL reaches 100 further than LSTM."
    assert "Not resolved" not in apart
    close = answer((200, 320), (250, 300))
    assert close["Not resolved"].endswith("as their intervals overlap: LSTM and XL.")
    assert "Differ" not in close


def test_speed_by_way_of_reading(tmp_path):
    speed_records.write_record(tmp_path)
    xl, lstm, paper = speed_answers(read_finding(tmp_path / "speed.json", SpeedRecord))
    assert [answer.about for answer in (xl, lstm, paper)] == ["XL", "LSTM", ""]
    assert xl.remarks[0] == Remark("Sliding window", ("800 ms a token at 1,800 keys.",))
    assert xl.remarks[1] == Remark(
        "Reuse, segments of 128",
        (
            "4 ms a token at 1,800 keys: 200 (180 to 240) times as fast as the sliding window of "
            "XL.",
        ),
    )
    assert paper.remarks[0].sentences == ("773 times as fast at 1,800 keys (Table 9).",)


def test_truth_names_the_rows_that_miss_it():
    (answer,) = truth_answers(TruthRecord.model_validate_json(json.dumps(test_truth.RECORD)))
    found = {remark.name: " ".join(remark.sentences) for remark in answer.remarks}
    assert found["Loss"] == (
        "0 of 2 rows come within 5% of the least possible loss in the regime of training. memory "
        "32: 1.111 bpc where 1.010 is possible (+10.0%). memory 32, resets: 1.111 bpc where 1.010 "
        "is possible (+10.0%)."
    )
    assert found["RECL on all tokens"].startswith(
        "Above the null it is that of the known losses in 0 of 2 rows: not in memory 32 32 instead "
        "of 64; "
    )


def test_shares_in_words():
    assert share_in_words(1.0, "units") == "all units"
    assert share_in_words(0.1, "tokens") == "the hardest 10 % of tokens"

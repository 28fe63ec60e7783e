"""Parameters are what decides a run; what may change is a tag."""

import json

from txlbench.config.run_config import RunConfig
from txlbench.tracking.values import (
    LONGEST_VALUE,
    comparison_values,
    description,
    parameters_of,
    settings_of,
    table_values,
)


def config(**changes: object) -> RunConfig:
    return RunConfig.model_validate({"corpus": "enwiki-sample", **changes})


def test_every_key_is_one_of_them() -> None:
    parameters, settings = parameters_of(config()), settings_of(config())
    assert not parameters.keys() & settings.keys()
    assert {"model.encoding", "train.lr", "seed", "corpus.name"} <= parameters.keys()
    assert {"evaluate.tokens", "train.log_interval", "corpus.path"} <= settings.keys()


def test_how_a_run_is_measured_changes_no_parameter() -> None:
    changed = config(evaluate={"tokens": 5}, train={"log_interval": 3})
    assert parameters_of(config()) == parameters_of(changed)
    assert settings_of(config()) != settings_of(changed)


def test_rows_of_a_table_come_in_order_of_loss_without_those_that_have_none(tmp_path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "row,bpc_init,bpc_best\nXL w/o recurrence,3.5,3\nnone,,\nodd,-,diverged\nXL,2.5,2\n"
    )
    assert [tuple(value[:2]) for value in table_values(table, "bpc")] == [
        ("bpc_best/XL", 2.0),
        ("bpc_best/XL w/o recurrence", 3.0),
        ("bpc_init/XL", 2.5),
        ("bpc_init/XL w/o recurrence", 3.5),
    ]
    assert table_values(tmp_path / "none.csv", "bpc") == []


def test_long_values_are_cut() -> None:
    lengths = list(range(1, 500))
    text = settings_of(config(evaluate={"attention_lengths": lengths}))[
        "evaluate.attention_lengths"
    ]
    assert len(text) == LONGEST_VALUE
    assert text.endswith("...")


def test_differences_and_the_headline_come_from_the_tables(tmp_path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("row,bpc_best_difference,bpc_best_difference_half_width\nXL,,\nShaw,0.5,0.1\n")
    assert [tuple(value[:2]) for value in comparison_values(table, "bpc")] == [
        ("bpc_best_difference/Shaw", 0.5),
        ("bpc_best_difference_half_width/Shaw", 0.1),
    ]
    compared = [{"measure": name, "headline": f"{name}!"} for name in ("init", "best")]
    (tmp_path / "table.json").write_text(json.dumps({"comparisons": compared}))
    assert description(tmp_path, [], tmp_path / "table.md", 2).startswith("best! 2 runs, nested")
    for damaged in ("", "[]", '{"comparisons": 3}', '{"comparisons": [1]}'):
        (tmp_path / "table.json").write_text(damaged)
        assert description(tmp_path, [], tmp_path / "table.md", 2).startswith("2 runs, nested")

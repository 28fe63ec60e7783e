"""Parameters are what decides a run; what may change is a tag."""

from txlbench.config.run_config import RunConfig
from txlbench.tracking.values import LONGEST_VALUE, parameters_of, settings_of


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


def test_long_values_are_cut() -> None:
    lengths = list(range(1, 500))
    text = settings_of(config(evaluate={"attention_lengths": lengths}))[
        "evaluate.attention_lengths"
    ]
    assert len(text) == LONGEST_VALUE
    assert text.endswith("...")

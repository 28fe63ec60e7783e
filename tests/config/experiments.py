"""Short ways to configurations and experiments for the tests of this folder."""

from typing import Any

from txlbench.config.grid import Experiment, expand
from txlbench.config.loading import parse_yaml
from txlbench.config.run_config import RunConfig

BASE = "name: trial\ncorpus: enwiki-sample\n"


def run(**sections: Any) -> RunConfig:
    """A run's configuration from its sections, the rest default."""
    return RunConfig.model_validate({"corpus": "enwiki-sample", **sections})


def experiment(text: str, *overrides: str) -> Experiment:
    """An expanded experiment file that begins with `BASE`, so that `text` starts at line 3."""
    return expand(parse_yaml(BASE + text, "trial.yaml"), overrides)

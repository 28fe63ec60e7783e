"""The functions for notebooks: lazy, and equal to what the verbs print and write."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from click.testing import CliRunner

import txlbench
from tests import workplace
from txlbench.cli.models import evaluate as eval_verb
from txlbench.machine import WAITING

MODEL = "quick/Transformer-XL"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("notebook")
        patch.chdir(place)
        patch.setenv("TXLBENCH_DATA", str(tmp_path_factory.mktemp("data")))
        workplace.make(place)
        yield place


def test_the_package_loads_nothing_heavy_before_a_function_is_called():
    code = "import sys, txlbench; txlbench.evaluate; txlbench.UserError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "mlflow", "matplotlib", "click"} & set(done.stdout.split())


def test_idle_threads_sleep_soon_in_a_notebook_too():
    code = "import os, txlbench; txlbench.load; print(os.environ['GOMP_SPINCOUNT'])"
    bare = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True)
    assert done.stdout.split() == [WAITING["GOMP_SPINCOUNT"]], done.stderr


def test_it_offers_what_it_says_and_nothing_else():
    assert set(txlbench.__all__) <= set(dir(txlbench))
    assert all(getattr(txlbench, name).__doc__ for name in txlbench.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        txlbench.nothing  # noqa: B018


def test_evaluate_equals_the_verb():
    frame = txlbench.evaluate(MODEL, attention_lengths=(4, 8))
    words = [MODEL, "--attention-lengths", "4,8", "--format", "json"]
    printed = json.loads(CliRunner().invoke(eval_verb, words, catch_exceptions=False).stdout)
    assert frame["loss"].tolist() == [each["loss"] for each in printed]
    assert frame["attention_length"].tolist() == [4, 8]


def test_results_are_those_of_the_table():
    txlbench.ablate("experiments/quick.yaml")
    written = pd.read_csv("results/quick/table.csv")
    for frame in (txlbench.results("quick"), txlbench.results("results/quick")):
        assert frame["row"].tolist() == written["row"].tolist()
        assert frame["bpc_best"].tolist() == pytest.approx(written["bpc_best"].tolist(), abs=1e-12)


def test_context_losses_are_those_that_recl_compares():
    losses = txlbench.context_losses(MODEL, (2, 4), tokens=400)
    assert losses.shape == (400, 2)
    assert losses.columns.tolist() == [2, 4]
    lengths = txlbench.recl(MODEL, contexts=(2, 4), tokens=400, shares=(1.0,))
    assert lengths[["model", "r"]].values.tolist() == [["Transformer-XL", 1.0]]
    assert lengths["recl"].item() in (2, 4)


def test_wrong_input_is_one_line():
    with pytest.raises(txlbench.UserError, match="did you mean 'Transformer-XL'"):
        txlbench.load("quick/Transformr-XL")
    with pytest.raises(txlbench.UserError, match="nowhere: no experiment here"):
        txlbench.results("nowhere")
    with pytest.raises(txlbench.UserError, match="--tgt-len: -3 found; give at least 1"):
        txlbench.evaluate(MODEL, tgt_len=-3)
    with pytest.raises(txlbench.UserError, match="--attention-lengths: 0 found; give at least 1"):
        txlbench.evaluate(MODEL, attention_lengths=(8, 0))
    with pytest.raises(txlbench.UserError, match="--models: a group without a model; name at"):
        txlbench.recl()


def test_attention_is_lines_of_one_table():
    found = txlbench.attention(MODEL, tokens=60, targets=2)
    assert {"mean_distance", "entropy_nats", "scale_of_a"} <= set(found["measure"])
    assert (found.groupby("layer")["head"].nunique() > 0).all()


def test_probes_are_lines_of_one_table():
    found = txlbench.probe(MODEL, contexts=(2, 4), tokens=60, lengths=(4,), changes=("reverse",))
    assert set(found["model"]) == {"Transformer-XL"}
    assert {"loss_nats", "worth_nats", "cost_nats", "fine_length"} <= set(found["measure"])

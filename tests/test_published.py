"""The results that the repository holds follow from the records beside them.

Whoever changes how tables, figures or pages are made publishes again:
`txlbench report RESULTS --publish results`, from the published records copied elsewhere.
"""

import json
import math
import re
import shutil
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.runs.trial import stopping_after
from txlbench.machine import processor
from txlbench.records.experiment_directory import ExperimentDirectory, results_at
from txlbench.records.run_directory import RunDirectory
from txlbench.reporting.pages.result_index import entries
from txlbench.reporting.publication import copy_records, publish_experiment, publish_finding
from txlbench.runs.job import Job
from txlbench.runs.train_run import execute

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NAMES = re.findall(r"^!results/([\w-]+)/$", (ROOT / ".gitignore").read_text(), re.M)
EXPERIMENTS, FINDINGS = results_at([RESULTS / name for name in NAMES])
FIRST = "memory"
"""The one whose files are made again by default; the others in the long tests."""
DRAWN_WITH = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)[1]
MOST_BYTES = 15_000_000


def files(folder):
    """Names below `folder` of what is published; what a user's own calls left there is ignored."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in found if "mlflow" not in path.name and path.suffix != ".png"}


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The records of all results in a folder of their own, as findings lie beside experiments."""
    folder = tmp_path_factory.mktemp("published")
    copy_records(EXPERIMENTS, FINDINGS, folder)
    return folder


def check(copy, original):
    """Every file equal, byte for byte; numbers of tables to their twelfth digit."""
    assert files(copy) == files(original)
    for name in sorted(files(copy)):
        made, published = (copy / name).read_bytes(), (original / name).read_bytes()
        if name.name == "table.json":
            assert_alike(json.loads(made), json.loads(published))
        elif name.suffix == ".csv":
            cells = [text.decode().replace("\n", ",").split(",") for text in (made, published)]
            assert_alike(*cells)
        elif name.suffix not in (".svg", ".html") or mpl.__version__ == DRAWN_WITH:
            assert made == published, name


def assert_alike(one, other):
    """Equal but for last digits, which another processor may round otherwise."""
    match one, other:
        case dict(), dict():
            assert one.keys() == other.keys()
            assert_alike([*one.values()], [*other.values()])
        case list(), list():
            assert len(one) == len(other)
            for pair in zip(one, other, strict=True):
                assert_alike(*pair)
        case _ if one != other:
            assert math.isclose(float(one), float(other), rel_tol=1e-12), (one, other)


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(each, id=name, marks=() if name == FIRST else pytest.mark.full)
        for each in EXPERIMENTS
        for name in [each.path.name]
    ],
)
def test_tables_figures_and_page_are_what_the_records_give(experiment, copies):
    copy = ExperimentDirectory(copies / experiment.path.name)
    assert publish_experiment(copy)[1] == ()
    for path in FINDINGS:
        if path.parent == experiment.path:
            publish_finding(copy.path / path.name)
    check(copy.path, experiment.path)


@pytest.mark.parametrize(
    "finding",
    [
        pytest.param(path, id=path.parent.name, marks=pytest.mark.full)
        for path in FINDINGS
        if not (path.parent / "spec.yaml").exists()
    ],
)
def test_a_finding_s_files_are_what_its_record_gives(finding, copies):
    publish_finding(copies / finding.parent.name / finding.name)
    check(copies / finding.parent.name, finding.parent)


def test_a_training_leaves_the_same_metric_lines_again(tmp_path):
    """The first steps of a published run, on one thread; elsewhere last digits may differ."""
    experiment = ExperimentDirectory(RESULTS / FIRST)
    line = experiment.read_spec().lines[0]
    published = experiment.run(line.run_ids[0])
    again = RunDirectory(tmp_path / published.id)
    again.path.mkdir()
    shutil.copy(published.path / "config.yaml", again.path)
    execute(Job(again.path, "cpu", ()), stopping_after(21))
    found, expected = [*again.read_metrics()], [*published.read_metrics()]
    assert [each.step for each in found] == [20]
    facts = (published.read_facts(), again.read_facts())
    if facts[0].versions == facts[1].versions and facts[0].device_name == processor():
        assert found == expected[:1]
    for ours, theirs in zip(found, expected, strict=False):
        assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-3)


def test_they_are_small_and_hold_no_weights_and_no_place_of_a_machine():
    paths = [RESULTS / name / path for name in NAMES for path in files(RESULTS / name)]
    assert {name for name in NAMES if (RESULTS / name).is_dir()} == {*NAMES}
    assert sum(path.stat().st_size for path in paths) < MOST_BYTES
    for path in paths:
        assert path.suffix not in (".pt", ".npz", ".log")
        text = path.read_text(encoding="utf-8")
        assert path.suffix == ".svg" or not re.search(r"/(tmp|home|root|Users)/", text), path


SAID = [ROOT / "README.md", ROOT / "docs/findings.md"]
DIFFERENCE = re.compile(r"(\d\.\d{3}) ± (\d\.\d{3})")
RECL = re.compile(r"\d+ \[\d+, \d+\]")


@pytest.mark.parametrize("page", SAID, ids=lambda page: page.name)
def test_every_interval_that_is_said_is_one_of_the_records(page):
    text = page.read_text(encoding="utf-8")
    known = {
        (f"{abs(pair['difference']):.3f}", f"{pair['half_width']:.3f}")
        for experiment in EXPERIMENTS
        for each in json.loads(experiment.table("json").read_text())["comparisons"]
        for pair in each["pairs"]
        if pair["half_width"] is not None
    }
    said = {*DIFFERENCE.findall(text)}
    assert said, "no interval is said"
    assert said <= known
    tables = " ".join((each.parent / "recl.md").read_text() for each in FINDINGS)
    assert {*RECL.findall(text)} <= {*RECL.findall(tables.replace("\\", ""))}


def test_the_index_lists_every_page_and_each_has_its_command():
    text = (RESULTS / "index.html").read_text(encoding="utf-8")
    pages = [each.link for each in entries(RESULTS) if each.name in NAMES]
    assert len(pages) == len(EXPERIMENTS) + len(FINDINGS)
    for link in pages:
        assert f'href="{link}"' in text
        assert "http" not in "".join(re.findall(r'(?:src|href)="([^"]+)"', text))
    for experiment in EXPERIMENTS:
        command = experiment.commands()[-1]
        place = re.search(r"experiments/[\w-]+\.yaml", command)
        assert place, command
        assert (ROOT / place[0]).is_file()

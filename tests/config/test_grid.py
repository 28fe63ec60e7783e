"""Grid, exclusions, rows and seeds become lines and runs; what cannot be is refused."""

from pathlib import Path

import pytest

from tests.config.experiments import BASE, experiment
from txlbench.config.grid import expand, load_experiment
from txlbench.config.loading import parse_yaml
from txlbench.errors import UserError

GRID = """
grid:
  model.encoding: [xl, absolute]
  train.recurrence: [true, false]
exclude:
  - {model.encoding: absolute, train.recurrence: true}
"""


def labels(text: str, *overrides: str) -> list[str]:
    return [line.label for line in experiment(text, *overrides).lines]


def test_without_rows_or_grid_there_is_one_line_with_the_experiments_name():
    (line,) = experiment("seeds: [3, 4]").lines
    assert line.label == "trial"
    assert [config.seed for config in line.configs] == [3, 4]


def test_the_grid_is_a_product_without_what_is_excluded():
    assert labels(GRID) == [
        "encoding=xl recurrence=true",
        "encoding=xl recurrence=false",
        "encoding=absolute recurrence=false",
    ]
    configs = [line.configs[0] for line in experiment(GRID).lines]
    assert [c.model.encoding for c in configs] == ["xl", "xl", "absolute"]
    assert [c.train.recurrence for c in configs] == [True, False, False]


def test_exclusions_do_not_touch_rows():
    row = "rows:\n  - set: {model.encoding: absolute, train.recurrence: true}\n"
    assert labels(GRID + row)[-1] == "encoding=absolute recurrence=true"


def test_rows_are_laid_over_the_base():
    text = """
train: {tgt_len: 8, lr: 1e-3}
rows:
  - label: A
    set: {train.tgt_len: 16}
    paper: {ppl: 27.02}
    note: chosen
  - set: {train.lr: 0.5, model.cutoffs: [10, 20]}
"""
    first, second = experiment(text).lines
    assert (first.label, second.label) == ("A", "lr=0.5 cutoffs=10, 20")
    assert (first.paper, first.note) == ({"ppl": 27.02}, "chosen")
    assert (first.configs[0].train.tgt_len, first.configs[0].train.lr) == (16, 0.001)
    assert (second.configs[0].train.tgt_len, second.configs[0].train.lr) == (8, 0.5)


def test_a_row_may_take_another_corpus():
    text = "rows:\n  - set: {corpus: wt103}\n  - set: {corpus.level: byte}\n"
    first, second = (line.configs[0].corpus for line in experiment(text).lines)
    assert (first.name, second.name, second.level) == ("wt103", "enwiki-sample", "byte")


def test_equal_configurations_share_a_run_and_keep_their_labels():
    text = """
seeds: [1, 2]
rows:
  - {label: A, set: {train.recurrence: false}}
  - {label: B, set: {train.mem_len: 0}}
  - {label: C, set: {train.mem_len: 5}}
"""
    expanded = experiment(text)
    assert [line.label for line in expanded.lines] == ["A", "B", "C"]
    assert expanded.lines[0].run_ids == expanded.lines[1].run_ids
    assert len(expanded.runs()) == 4


def test_a_seed_given_twice_is_one_run():
    (line,) = experiment("seeds: [2, 1, 2]").lines
    assert [config.seed for config in line.configs] == [2, 1]


def test_set_changes_the_base():
    expanded = experiment(GRID, "train.max_step=7", "train.lr=1e-4", "seeds=[5, 6]", "name=other")
    assert expanded.name == "other"
    for line in expanded.lines:
        assert [(c.seed, c.train.max_step, c.train.lr) for c in line.configs] == [
            (5, 7, 0.0001),
            (6, 7, 0.0001),
        ]
    assert expanded.raw["train"] == {"max_step": 7, "lr": 0.0001}


def test_a_parsed_file_may_be_expanded_again():
    document = parse_yaml(BASE + GRID, "trial.yaml")
    expand(document, ["train.max_step=7"])
    assert expand(document).lines == experiment(GRID).lines


def test_an_equal_label_goes_before_patterns():
    rows = "rows:\n  - {label: 'XL [full]', set: {train.lr: 0.1}}\n  - {label: XL f}\n"
    assert [line.label for line in experiment(rows).only(["XL [full]"]).lines] == ["XL [full]"]


def test_only_selects_by_label_or_run_id():
    expanded = experiment(GRID)
    assert [line.label for line in expanded.only(["*recurrence=false"]).lines] == labels(GRID)[1:]
    identity = expanded.lines[0].run_ids[0]
    assert [line.label for line in expanded.only([identity]).lines] == labels(GRID)[:1]
    assert expanded.only(["*"]).lines == expanded.lines
    with pytest.raises(UserError, match=r"--only Z\*: no row matches; rows: 'encoding=xl rec"):
        expanded.only(["*", "Z*"])


def test_lengths_that_al_rfou_cannot_do_are_skipped_with_a_warning():
    text = """
train: {tgt_len: 8, recurrence: false}
evaluate: {attention_lengths: [4, 8, 16]}
grid: {model.encoding: [xl, al-rfou]}
"""
    (warning,) = experiment(text).warnings
    assert warning == (
        "row 'encoding=al-rfou': attention lengths above 8 are skipped, as al-rfou has positions "
        "for 8 only"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid:\n  model.encoding: []", "4: grid.model.encoding: has no values; give at least *"),
        ("grid:\n  model.encoding: xl", "4: grid.model.encoding: 'xl' found; *valid list"),
        ("grid: {model.encodin: [xl]}", "3: model.encodin: unknown key*did you mean 'encoding'?*"),
        ("grid: {modle.encoding: [xl]}", "3: grid.modle.encoding: not a setting; did you mean*"),
        ("grid: {model.n_head: [2, x]}", "3: model.n_head: 'x' found (row 'n_head=x'); *"),
        (GRID + "  - {}", "9: exclude.1: excludes everything; name keys, or drop it"),
        (
            GRID + "  - {model.encodin: xl}",
            "9: exclude.1.model.encodin: not a key of the grid; did you mean 'model.encoding'?*",
        ),
        (
            GRID + "  - {model.encoding: absolut}",
            "9: exclude.1.model.encoding: 'absolut' is not in the grid; did you mean 'absolute'?*",
        ),
        (
            "exclude: [{model.encoding: xl}]",
            "3: exclude.0.model.encoding: not a key of the grid; there is no grid; drop it",
        ),
        (
            "grid: {model.encoding: [xl]}\nexclude: [{model.encoding: xl}]",
            "4: exclude: leaves no row; drop an exclusion, or add rows",
        ),
        ("rows:\n  - set: {seed: 4}", "4: rows.0.set.seed: not a setting; known: corpus, *"),
        (
            "rows:\n  - label: A\n    set: {train: {lr: 1}}",
            "5: rows.0.set.train: a whole section; set single keys: train.KEY",
        ),
        (
            "train: {lr: 2}\nrows:\n  - set: {train.lr.x: 1}",
            "5: train.lr.x: train.lr is 2, not a section; drop .x",
        ),
        (
            "rows:\n  - label: A\n    set:\n      model.n_layer: 1\n      train.lr: fast",
            "7: train.lr: 'fast' found (row 'A'); input should be a valid number",
        ),
        (
            "rows:\n  - label: A\n    set: {model.cutoffs: [3, 2]}",
            "5: model: cutoffs [3, 2] must be positive and ascending (row 'A')",
        ),
        ("rows:\n  - {label: A}\n  - {label: A}", "5: rows.1: two rows are called 'A'; rename one"),
        ("rows:\n  - {label: 1}", "4: rows.0.label: 1 found; input should be a valid string"),
        ("rows:\n  - {label: on}", "4: rows.0.label: on found; *: put it in quotes, 'on'"),
        ("rows:\n  - {label: 2020-01-01}", "4: rows.0.label: 2020-01-01 found; *put it in quotes*"),
        ("rows:\n  - {label: 12:30}", "4: rows.0.label: 12:30 found, *base 8 or 60; *quotes"),
        ("rows:\n  - paper: {off: 3}", "4: rows.0.paper.off: no text for YAML; *quotes: 'off'"),
        ("seeds: [010]", "3: seeds.0: 010 found, which YAML reads to base 8 *leading zeros*"),
        ("grid:\n  train.lr:\n  - 0.1\n  - 1e-1", "6: grid.train.lr.1: 0.1 given twice; drop one"),
        (
            "grid:\n  train.lr: [0.1]\nrows:\n  - {label: lr=0.1}",
            "6: rows.0: two rows are called 'lr=0.1'; rename one",
        ),
        (
            "grid:\n  train.recurence: [true, false]\nexclude: [{train.recurrence: true}]",
            "4: train.recurence: unknown key (row 'recurence=true'); did you mean 'recurrence'?*",
        ),
        (
            "grid:\n  model.encoding: [xl, absolut]\nexclude: [{model.encoding: absolute}]",
            "4: model.encoding: unknown encoding 'absolut'; did you mean 'absolute'?*",
        ),
        (GRID + "  - []", "9: exclude.1: [] found; input should be a valid mapping"),
        ("seeds: 3", "3: seeds: 3 found; input should be a valid list"),
        ("seeds: []", "3: seeds: [] found; list should have at least 1 item *"),
        ("seeds: [1, a]", "3: seeds.1: 'a' found; input should be a valid integer"),
        ("seeds: [-1]", "1: seed: -1 found *greater than or equal to 0"),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_cannot_be_is_refused_in_one_line(text: str, message: str):
    with pytest.raises(UserError) as caught:
        experiment(text)
    found, parts = str(caught.value), f"trial.yaml:{message}".split("*")
    assert found.startswith(parts[0]), found
    assert all(part in found for part in parts), found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr", "--set train.lr: not KEY=VALUE; for example train.max_step=100"),
        ("=3", "--set =3: not KEY=VALUE; *"),
        ("modle.n_head=3", "--set modle.n_head: unknown key 'modle'; did you mean 'model'?*"),
        ("grid=3", "--set grid: unknown key 'grid'; *"),
        ("train.lr=[", "--set train.lr:1: not YAML: *"),
        ("seeds.0=3", "--set: seeds.0: seeds is [1], not a section; drop .0"),
        ("train.lrr=3", "--set: train.lrr: unknown key; did you mean 'lr'?*"),
        ("train.lr=fast", "--set: train.lr: 'fast' found; *"),
        ("seeds=3", "--set: seeds: 3 found; *"),
    ],
)
def test_settings_that_cannot_be(override: str, message: str):
    with pytest.raises(UserError) as caught:
        experiment("seeds: [1]", override)
    found, parts = str(caught.value), message.split("*")
    assert found.startswith(parts[0]), found
    assert all(part in found for part in parts), found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": not an experiment file"),
        ("[]", ":1: not an experiment file"),
        ("5", ":1: not an experiment file"),
        ("name: x", ":1: corpus: missing"),
        ("corpus: wt103", ":1: name: missing"),
    ],
)
def test_what_is_not_an_experiment_file(text: str, problem: str, tmp_path: Path):
    path = tmp_path / "trial.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "", "a b"])
def test_names_are_safe_as_directories(name: str, tmp_path: Path):
    path = tmp_path / "trial.yaml"
    path.write_text(BASE.replace("trial", repr(name)))
    with pytest.raises(UserError, match=r"name: .* string should match pattern"):
        load_experiment(path)


def test_the_file_itself_is_left_alone(tmp_path: Path):
    path = tmp_path / "trial.yaml"
    path.write_text(BASE)
    load_experiment(path, ["train.lr=1e-3"])
    assert path.read_text() == BASE


def test_several_patterns_choose_the_union_in_the_files_order():
    expanded = experiment(GRID)
    first, second = expanded.lines[0].label, expanded.lines[1].label
    assert [line.label for line in expanded.only([second, first]).lines] == [first, second]


def test_a_setting_that_the_grid_makes_in_every_row_is_refused():
    with pytest.raises(UserError, match="every row sets it; choose rows with --only"):
        experiment(GRID, "train.recurrence=true")


ROWS = "rows:\n  - {label: A, set: {train.loss: full}}\n  - {label: B, set: {train.loss: half}}\n"


@pytest.mark.parametrize(
    ("text", "override"),
    [
        (ROWS, "train.loss=half"),
        ("rows: [{set: {corpus: wt2}}, {set: {corpus.name: wt103}}]", "corpus.name=ptb"),
        ("grid: {train.lr: [1.0]}\nrows: [{label: A, set: {train.lr: 2.0}}]", "train.lr=3.0"),
    ],
)
def test_a_setting_that_rows_make_themselves_is_refused(text: str, override: str):
    key = override.partition("=")[0]
    with pytest.raises(UserError, match=f"--set {key}: every row sets it"):
        experiment(text, override)


def test_a_setting_that_some_rows_make_themselves_is_a_warning():
    found = experiment(ROWS + "  - {label: C}", "train.loss=half")
    assert found.lines[2].configs[0].train.loss == "half"
    assert found.lines[0].configs[0].train.loss == "full"
    assert found.warnings == ("--set train.loss: these rows set it themselves: A, B",)


def test_a_whole_section_is_not_set_at_once():
    """It would drop what the file says in the section, silently."""
    with pytest.raises(UserError, match="a whole section"):
        experiment(GRID, "train={max_step: 5}")
    assert experiment("", "corpus=wt2").lines[0].configs[0].corpus.name == "wt2"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "rows:\n- {label: A, set: {model.memory: shift, train.recurrence: false}}\n"
            "- {label: B, set: {model.memory: shift}}",
            "model.memory: no effect in these rows, which have no such memory: A",
        ),
        (
            "grid: {model.memory: [shift, none], model.kind: [lstm, transformer]}",
            "model.memory: no effect in these rows, which have no such memory: "
            "memory=shift kind=lstm",
        ),
        (
            "rows: [{label: A, set: {train.random_mem_len: true, train.mem_len: 0}}]",
            "train.random_mem_len: no effect in these rows, which have no such memory: A",
        ),
        (
            "model: {memory: sinks}\ntrain: {recurrence: false}",
            "model.memory: no effect, as no row has such a memory",
        ),
    ],
)
def test_settings_of_memory_without_effect_are_warned_of(text, warning):
    assert experiment(text).warnings == (warning,)


def test_settings_of_memory_in_the_base_mean_something_to_some_rows():
    text = "model: {memory: shift}\ngrid: {train.recurrence: [true, false]}"
    assert experiment(text).warnings == ()


HF = "model.kind: hf, model.architecture: llama"
MIXED = f"rows:\n- {{label: a}}\n- {{label: b, set: {{{HF}}}}}\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"rows:\n- set: {{{HF}, model.dropout: 0.2}}\n", "4: rows.0.set.model.dropout"),
        ("grid: {model.kind: [hf], model.architecture: [llama], model.n_layer: [1, 2]}\n",
         "3: grid.model.n_layer"),
        ("model: {kind: hf, architecture: llama, d_model: 32}\n", "3: model.d_model"),
        (f"{MIXED}tune: {{model.dropout: [0.1, 0.2]}}\n", "6: tune.model.dropout"),
    ],
)  # fmt: skip
def test_keys_that_mean_nothing_to_an_architecture_are_refused(text: str, place: str):
    with pytest.raises(UserError, match=f"^trial.yaml:{place}: means nothing .*model.config"):
        experiment(text)


def test_other_rows_of_the_file_have_such_keys():
    assert experiment(f"model: {{n_layer: 2}}\n{MIXED}").warnings == ()
    assert experiment(f"grid: {{model.n_layer: [1, 2]}}\n{MIXED}").warnings == ()

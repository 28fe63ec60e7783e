"""The command line as people meet it: help, exit statuses, and what bad input is told."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.trial import call
from tests.runs.trial import snapshot, write_spec, write_text
from txlbench.cli.main import COMMANDS, EXAMPLES, GROUPS, cli, main
from txlbench.config.loading import OTHER_NAMES
from txlbench.config.run_config import RunConfig
from txlbench.errors import ExitStatus


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path.parent / f"{tmp_path.name}-data"))
    write_text(tmp_path / "mine.txt")
    (tmp_path / "tiny.txt").write_text("abc")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "folder.yaml").mkdir()
    return tmp_path


@pytest.fixture
def typed(monkeypatch, capfd):
    """Calls the entry point in this process: (exit status, output, errors)."""

    def type_(*arguments):
        monkeypatch.setattr(sys, "argv", ["txlbench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return (end.value.code, *capfd.readouterr())

    return type_


def spec(settings=None, /, **top):
    """What makes the file that the call names."""
    return lambda: write_spec(settings, **top)


def text(content):
    return lambda: Path("spec.yaml").write_text(content)


def nothing():
    return None


ROW = {"label": "bad", "set": {}}
CALL = ("ablate", "spec.yaml", "--device", "cpu")
BAD = {
    # files
    "missing file": (nothing, ("ablate", "none.yaml"), ["none.yaml", "no such file"]),
    "directory": (nothing, ("ablate", "folder.yaml"), ["folder.yaml", "directory"]),
    "binary file": (nothing, ("ablate", "binary.yaml"), ["binary.yaml", "UTF-8"]),
    "empty file": (text(""), CALL, ["spec.yaml", "not an experiment file"]),
    "a list": (text("- 1\n"), CALL, ["spec.yaml", "not an experiment file"]),
    "not YAML": (text("a: [1\nb: 2\n"), CALL, ["spec.yaml:2", "not YAML"]),
    "code in YAML": (
        text("a: !!python/object/apply:os.mkdir [x]\n"), CALL, ["spec.yaml:1", "not YAML"],
    ),
    "a key twice": (text("name: a\nname: b\n"), CALL, ["spec.yaml:2", "name", "twice"]),
    "no corpus": (text("name: a\n"), CALL, ["spec.yaml", "corpus", "missing"]),
    # keys and values
    "unknown key": (spec({"train.tgt_length": 8}), CALL, ["tgt_length", "did you mean 'tgt_len'"]),
    "unknown section": (spec(trian={}), CALL, ["trian", "did you mean 'train'"]),
    "wrong type": (spec({"train.lr": "fast"}), CALL, ["train.lr", "'fast'", "number"]),
    "another name of a key": (
        spec({"train.learning_rate": 0.1}), CALL, ["learning_rate", "mean 'train.lr'"],
    ),
    "a key outside its section": (spec(lr=0.1), CALL, [": lr: unknown", "did you mean 'train.lr'"]),
    "--set of a key outside its section": (
        spec(), (*CALL, "--set", "lr=0.1"), ["--set lr", "did you mean 'train.lr'"],
    ),
    "schema of an unknown key": (nothing, ("schema", "train.tgt"), ["mean 'train.tgt_len'"]),
    "schema of an unknown section": (nothing, ("schema", "trian"), ["did you mean 'train'"]),
    "text for a number": (spec({"train.tgt_len": "8"}), CALL, ["train.tgt_len", "'8'"]),
    "not finite": (spec({"train.lr": float("nan")}), CALL, ["train.lr", "nan", "finite"]),
    "tgt_len 0": (spec({"train.tgt_len": 0}), CALL, ["train.tgt_len", "0 found", "1"]),
    "negative mem_len": (spec({"train.mem_len": -1}), CALL, ["train.mem_len", "-1", "0"]),
    "dropout 1": (spec({"model.dropout": 1.0}), CALL, ["model.dropout", "1.0", "less than 1"]),
    "no seeds": (spec(seeds=[]), CALL, ["seeds", "at least 1"]),
    "negative seed": (spec(seeds=[-1]), CALL, ["seed", "-1"]),
    "name with a slash": (spec(name="../up"), CALL, ["name", "../up"]),
    "unknown encoding": (spec({"model.encoding": "show"}), CALL, ["'show'", "did you mean 'shaw'"]),
    "lengths of 0": (spec({"evaluate.attention_lengths": [0]}), CALL, ["attention_lengths", "[0]"]),
    # impossible combinations
    "same_length without memory": (
        spec({"model.same_length": True, "train.mem_len": 0}), CALL, ["same_length", "mem_len"],
    ),
    "al-rfou too long": (
        spec({"model.encoding": "al-rfou", "evaluate.tgt_len": 9}),
        CALL,
        ["evaluate.tgt_len 9", "al-rfou", "at most 8"],
    ),
    "stride beyond a window": (
        spec({"train.mem_len": 0, "evaluate.stride": 5}), CALL, ["evaluate.stride 5", "4"],
    ),
    "warm-up too long": (spec({"train.warmup_step": 50}), CALL, ["warmup_step 50", "max_step 12"]),
    "chunks that do not divide": (
        spec({"train.batch_chunk": 3}), CALL, ["batch_chunk 3", "batch_size 4"],
    ),
    "descending cutoffs": (spec({"model.cutoffs": [50, 20]}), CALL, ["cutoffs [50, 20]"]),
    "cutoffs beyond the vocabulary": (
        spec({"model.cutoffs": [20, 256]}), CALL, ["model.cutoffs: [20, 256]", "256", "under"],
    ),
    "batch too large for the split": (
        spec({"train.batch_size": 9999}), CALL, ["row 'trial'", "train.batch_size: 9999", "lower"],
    ),
    # rows and grid
    "row sets no setting": (
        spec(rows=[{**ROW, "set": {"trian.lr": 1}}]), CALL, ["trian.lr", "did you mean 'train'"],
    ),
    "wrong value in a row": (
        spec(rows=[{**ROW, "set": {"train.lr": -1.0}}]), CALL, ["train.lr", "-1.0", "row 'bad'"],
    ),
    "two rows of one name": (spec(rows=[ROW, ROW]), CALL, ["two rows", "'bad'", "rename"]),
    "empty grid": (spec(grid={"train.lr": []}), CALL, ["grid.train.lr", "no values"]),
    # corpora
    "unknown corpus": (spec(corpus="enwik-sample"), CALL, ["did you mean 'enwiki-sample'"]),
    "name of the catalogue": (
        spec({"corpus.name": "enwiki-sample"}), CALL, ["'enwiki-sample'", "another name"],
    ),
    "missing text": (spec({"corpus.path": "gone.txt"}), CALL, ["gone.txt", "no such file"]),
    "a folder as text": (spec({"corpus.path": "folder.yaml"}), CALL, ["folder.yaml"]),
    "empty text": (spec({"corpus.path": "empty.txt"}), CALL, ["empty.txt", "0 tokens", "longer"]),
    "text too short": (spec({"corpus.path": "tiny.txt"}), CALL, ["tiny.txt", "longer text"]),
    "not UTF-8": (
        spec({"corpus.path": "latin.txt", "corpus.level": "char"}), CALL, ["latin.txt", "UTF-8"],
    ),
    "valid without test": (spec({"corpus.valid": "mine.txt"}), CALL, ["both valid and test"]),
    # the call
    "--set without value": (spec(), (*CALL, "--set", "train.lr"), ["--set train.lr", "KEY=VALUE"]),
    "--set of an unknown key": (
        spec(), (*CALL, "--set", "trian.lr=1"), ["--set trian.lr", "did you mean 'train'"],
    ),
    "--set of an unknown setting": (
        spec(), (*CALL, "--set", "train.rl=1"), ["train.rl", "unknown key"],
    ),
    "--set of a wrong value": (
        spec(), (*CALL, "--set", "train.lr=often"), ["train.lr", "'often'"],
    ),
    "--only without a match": (spec(), (*CALL, "--only", "z*"), ["--only z*", "'trial'"]),
    "--jobs 0": (spec(), (*CALL, "--jobs", "0"), ["--jobs", "0", "--help"]),
    "--format of another kind": (spec(), (*CALL, "--format", "xml"), ["--format", "xml", "json"]),
    "--utilisation nan": (
        spec(), (*CALL, "--accelerator", "a100", "--utilisation", "nan"), ["--utilisation", "nan"],
    ),
    "--resource gpus without a GPU": (
        spec(),
        ("ablate", "spec.yaml", "--launcher", "slurm", "--resource", "cluster=local",
         "--resource", "gpus=99"),
        ["gpus=99", "CUDA devices"],
    ),
    "unknown device": (spec(), ("ablate", "spec.yaml", "--device", "tpu"), ["tpu", "cuda:N"]),
    "device that is not there": (
        spec(), ("ablate", "spec.yaml", "--device", "cuda:99"), ["--device cuda:99", "use auto"],
    ),
    "output is a file": (spec(), (*CALL, "--out", "mine.txt"), ["mine.txt", "is a file"]),
    "output under a file": (
        spec(), (*CALL, "--out", "mine.txt/out"), ["mine.txt/out", "choose another --out"],
    ),
    "unknown option": (spec(), (*CALL, "--job", "2"), ["--job", "--help"]),
    "no experiment file": (nothing, ("ablate",), ["SPEC", "txlbench ablate --help"]),
    "unknown command": (nothing, ("ablat",), ["'ablat'", "did you mean 'ablate'"]),
    "status of nothing": (nothing, ("status", "gone"), ["gone", "does not exist"]),
    "status of no experiment": (nothing, ("status", "."), ["no experiment", "give"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_leaves_nothing_behind(folder, typed, name):
    make, arguments, parts = BAD[name]
    make()
    before = snapshot(folder), sorted(folder.rglob("*"))
    status, output, errors = typed(*arguments)
    assert status == ExitStatus.USAGE == 2
    (line,) = [line for line in errors.splitlines() if line]
    assert line.startswith("Error: ")
    assert all(part in line for part in parts), line
    assert "Traceback" not in errors + output
    assert (snapshot(folder), sorted(folder.rglob("*"))) == before


def test_bad_input_of_a_real_process():
    write_spec({"train.tgt_len": 0})
    status, output, errors = call("ablate", "spec.yaml")
    assert (status, output) == (2, "")
    assert errors.startswith("Error: spec.yaml:")
    assert len(errors.splitlines()) == 1


def test_the_place_of_an_error_is_its_line(typed):
    write_spec({"train.tgt_len": 0})
    _, _, errors = typed("ablate", "spec.yaml")
    number = int(errors.split("spec.yaml:")[1].split(":")[0])
    assert "tgt_len: 0" in Path("spec.yaml").read_text().splitlines()[number - 1]


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("ablate", "--help")])
def test_help_is_not_an_error(typed, arguments):
    status, output, errors = typed(*arguments)
    assert status == 0
    assert output.startswith("Usage: txlbench")
    assert errors == ""


def test_no_command_shows_the_help(typed):
    status, output, errors = typed()
    assert status == 2
    assert "Usage: txlbench" in output + errors


def test_help_lists_every_command_with_what_it_does(typed):
    _, output, _ = typed("--help")
    squeezed = " ".join(output.split())
    assert all(f"{name} {summary}" in squeezed for name, (_, summary) in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(typed, name):
    status, output, _ = typed(name, "--help")
    assert status == 0
    assert f"Usage: txlbench {name}" in output


def test_an_interrupt_exits_with_130(typed, monkeypatch):
    def interrupted(request):
        raise KeyboardInterrupt

    monkeypatch.setattr("txlbench.cli.plan.open_experiment", interrupted)
    write_spec()
    status, _, errors = typed("ablate", "spec.yaml", "--dry-run")
    assert status == 130
    assert errors.strip() == "interrupted"


def test_a_verb_that_returns_a_status_exits_with_it(typed, monkeypatch):
    from txlbench.cli import experiments

    monkeypatch.setattr(experiments, "_ablate", lambda request: 1)
    assert typed("ablate", "spec.yaml")[0] == 1
    monkeypatch.setattr(experiments, "_ablate", lambda request: 0)
    assert typed("ablate", "spec.yaml")[0] == 0


def test_schema_explains_every_key_of_an_experiment_file(typed):
    status, output, _ = typed("schema")
    lines = output.splitlines()
    assert status == 0
    assert "train.mem_len: whole number >= 0 or null; default null" in lines
    assert 'model.kind: text; default "transformer"' in lines
    assert lines[lines.index("corpus.name: text; required") + 1].startswith("    the catalogue's")
    keys = {line.partition(":")[0] for line in lines if not line.startswith(" ")}
    sections = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    sections.pop("seed")
    every = {f"{name}.{key}" for name, part in sections.items() for key in part.model_fields}
    assert every | {"name", "seeds", "grid", "exclude", "rows", "rows.label"} <= keys
    assert set(OTHER_NAMES.values()) <= keys


def test_schema_of_a_section(typed):
    _, output, _ = typed("schema", "rows")
    assert [line.split(":")[0] for line in output.splitlines() if line[0] != " "] == [
        "rows", "rows.label", "rows.set", "rows.paper", "rows.note", "rows.tuned",
    ]  # fmt: skip


def test_the_trial_spec_is_what_the_tests_say():
    """The helper writes what the command reads."""
    write_spec({"train.lr": 1e-3}, seeds=[4])
    content = yaml.safe_load(Path("spec.yaml").read_text())
    assert content["seeds"] == [4]
    assert float(content["train"]["lr"]) == 0.001


def test_help_lists_every_verb_once_by_purpose_and_ends_in_examples():
    text = CliRunner().invoke(cli, ["--help"]).stdout
    verbs = [
        line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert {name: verbs.count(name) for name in COMMANDS} == dict.fromkeys(COMMANDS, 1)
    assert {name for names in GROUPS.values() for name in names} <= set(COMMANDS)
    assert text.rstrip().endswith(EXAMPLES[-1])


def test_a_range_with_too_many_contexts_says_so():
    status, _, errors = call("recl", "--models", "a.npz", "--contexts", "1:99999999:1")
    assert status == ExitStatus.USAGE
    assert "at most 10,000 are taken; raise STEP" in errors


@pytest.mark.parametrize(
    "words",
    [
        ["recl", "--models", "a.npz", "--out="],
        ["eval", "any", "--corpus", ""],
        ["schema", "--plugin="],
        ["data", "export", "my-text.txt", "--out="],
        ["new", "a", "--corpus="],
    ],
)
def test_an_empty_path_is_refused(words):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert ": empty; give a path or drop the option" in done.output


def test_sigterm_interrupts_as_ctrl_c_does(typed, monkeypatch):
    def ended(**_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(cli, "main", ended)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert typed("context") == (ExitStatus.INTERRUPTED, "", "interrupted\n")
    finally:
        signal.signal(signal.SIGTERM, before)

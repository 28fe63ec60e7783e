"""What MLflow lacks is known without MLflow."""

import subprocess
import sys
from pathlib import Path

from tests.reporting.laboratory import Laboratory
from txlbench.records.claim import claimed
from txlbench.tracking.backlog import Delivered, backlog, next_offset, nothing_to_deliver
from txlbench.tracking.store import store_of


def test_everything_is_backlog_at_first(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1])
    assert backlog(directory.path) == (3, 180)
    assert not nothing_to_deliver(directory.path)


def test_asking_imports_neither_mlflow_nor_torch(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1])
    program = (
        "import sys; from pathlib import Path\n"
        "from txlbench.tracking.backlog import nothing_to_deliver\n"
        "from txlbench.tracking.backlog import where_to_look\n"
        f"nothing_to_deliver(Path({str(directory.path)!r})); where_to_look(Path('results/a'))\n"
        "print({'mlflow', 'torch', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stderr


def test_unreadable_notes_are_no_notes(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1])
    for content in ("{", "[]", '{"surprise": 1}'):
        (directory.path / "mlflow.json").write_text(content)
        assert Delivered.read(directory.path, store_of(directory.path)).run_id is None


def test_notes_of_another_store_do_not_count(laboratory: Laboratory, tmp_path: Path) -> None:
    directory = laboratory.finished(seeds=[1])
    Delivered("sqlite:////elsewhere.db", run_id="x").write(directory.path)
    assert Delivered.read(directory.path, store_of(directory.path)).run_id is None


def test_other_lines_than_were_delivered_are_read_from_the_start(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.start(run, config, line)
    run.metrics_file.write_text('{"step": 1, "train_loss": 2.0}\n{"step": 2, "train_loss": 2.0}\n')
    notes = Delivered("store", offset=31)
    assert next_offset(run, notes) == 31
    notes.offset = 35  # within a line: the file is another one
    assert next_offset(run, notes) == 0
    notes.offset = 1000
    assert next_offset(run, notes) == 0  # the run has ended with other lines
    with claimed(run.path):
        assert next_offset(run, notes) is None  # it goes on, and lines come again

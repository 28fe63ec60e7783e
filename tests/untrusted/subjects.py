"""Files that come from elsewhere, each with what reads it; a new loader is added here, once."""

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.models.convert.official_modules import save_official
from tests.models.convert.scored import GOLDEN
from tests.reporting.attention_records import write_record as write_attention
from tests.reporting.context_records import write_record as write_context
from tests.reporting.laboratory import Laboratory
from tests.reporting.probe_records import write_record as write_probe
from tests.reporting.recl_records import write_record
from tests.reporting.sample_records import write_record as write_samples
from tests.reporting.speed_records import bench_result, write_bench
from tests.reporting.speed_records import write_record as write_speed
from tests.reporting.test_truth import RECORD as TRUTH
from tests.runs.trial import SPEC
from txlbench.commands.texts import read_ids
from txlbench.config.grid import load_experiment
from txlbench.config.loading import dump_yaml
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import CorpusConfig
from txlbench.data.corpus import open_corpus
from txlbench.data.download import extract
from txlbench.data.prepare import build
from txlbench.data.source import TextFile
from txlbench.models.convert.hf import read_hf
from txlbench.models.convert.tf import TensorBundle, read_tf
from txlbench.models.convert.torch_file import read_torch
from txlbench.records.experiment_directory import FINDINGS, ExperimentDirectory
from txlbench.records.loss_file import LossFile, read_loss_file, write_loss_file
from txlbench.records.schema import EvaluationRecord
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures.attention_length import sweep_frame
from txlbench.reporting.figures.learning_curves import curves_frame
from txlbench.reporting.figures.losses import positions_frame
from txlbench.reporting.findings import report_finding
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.result_table import build_table, table_frame
from txlbench.reporting.table import for_terminal, latex, markdown, plain_text
from txlbench.runs.plan import make_plan
from txlbench.runs.plan_record import describe_plan
from txlbench.tracking.backlog import backlog, nothing_to_deliver
from txlbench.training import checkpoint


@dataclass(frozen=True)
class Subject:
    """A file under attack.

    Attributes:
        make: writes a folder in which all is well.
        file: the file of it that is changed, relative to the folder.
        read: reads the folder.
        kind: how the file is changed, see `mutations.mutated`.
    """

    name: str
    make: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]
    kind: str = "bytes"


def _loss_file(folder: Path) -> None:
    file = LossFile(np.ones((2, 3)), np.array([1, 2]), np.array([4, 5, 6]), name="a", longest=9)
    write_loss_file(folder / "a.npz", file)


def _checkpoint(folder: Path) -> None:
    checkpoint.save_model(folder / "best.pt", {"a": torch.arange(12.0).reshape(3, 4)})


def _spec(folder: Path) -> None:
    rows = [{"label": "a", "set": {"train.lr": 0.1}, "paper": {"ppl": 1.0}}]
    grid = {"model.encoding": ["xl", "shaw"]}
    content = {**SPEC, "seeds": [1, 2], "rows": rows, "grid": grid}
    (folder / "spec.yaml").write_text(dump_yaml(content))


def _run(folder: Path) -> None:
    rows, train = [{"label": "xl"}], {"tgt_len": 8, "mem_len": 8, "max_step": 20}
    laboratory = Laboratory(folder / "results")
    (run,) = laboratory.finished(rows=rows, seeds=[1], train=train).runs()
    config = run.read_config()
    measurement = training_regime(config, "test")
    run.write_evaluation(EvaluationRecord(measurement=measurement, loss=1.0, tokens=9))
    (run.evaluations / f"{measurement.key}.json").rename(run.evaluations / "one.json")
    notes = {"store": "s", "token": "t", "run_id": "r", "offset": 40, "files": {"a": "b"}}
    (run.path / "mlflow.json").write_text(json.dumps(notes))
    (folder / "run").symlink_to(run.path.relative_to(folder))


def _show(folder: Path) -> None:
    """All that table, figures and plan ask of an experiment."""
    directory = ExperimentDirectory(folder / "results" / "small")
    results = read_results(directory)
    provenance = Provenance.of(results, "c")
    table = build_table(results, provenance)
    for form in (markdown, latex, plain_text):
        form(for_terminal(table, "s"))
    for frame in (curves_frame, sweep_frame, positions_frame):
        frame(results)
    table_frame(results, provenance).to_csv()
    describe_plan(make_plan(results.experiment, directory))
    backlog(directory.path)
    nothing_to_deliver(directory.path)
    for run in directory.runs():
        run.damage()
        _ = run.current_state


def _of_run(name: str, kind: str = "json") -> Subject:
    return Subject(f"run: {name}", _run, f"run/{name}", _show, kind)


def _zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("wanted.txt", b"hello " * 50)
        archive.writestr("../other.txt", b"other")


def _tar(folder: Path, mode: Any = "w") -> None:
    with tarfile.open(folder / "a", mode) as archive:
        for name in ("../other.txt", "wanted.txt"):
            member = tarfile.TarInfo(name)
            member.size = 300
            archive.addfile(member, io.BytesIO(b"hello " * 50))


def _extract(folder: Path) -> None:
    (folder / "out").mkdir(exist_ok=True)
    extract(folder / "a", {"wanted.txt": folder / "out" / "wanted.txt"})


def _golden(case: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(GOLDEN / case, folder, dirs_exist_ok=True)


def _torch(folder: Path, zipped: bool) -> None:
    save_official(folder / "model.pt", "plain", _use_new_zipfile_serialization=zipped)


def _tf(folder: Path) -> None:
    for path in (GOLDEN / "tf").glob("shared.*"):
        shutil.copy(path, folder)


def _tf_npz(folder: Path) -> None:
    bundle = TensorBundle(GOLDEN / "tf" / "shared")
    np.savez(folder / "a.npz", **{name: bundle.read(name) for name in bundle.entries})


def _corpus(folder: Path) -> None:
    (folder / "mine.txt").write_text("hello world, a text\nof some length\n" * 40)
    source = TextFile(CorpusConfig(name="mine", path=str(folder / "mine.txt"), level="word"))
    (folder / "corpus").mkdir()
    build(source, source.checksum(), folder / "corpus", folder)


def _open_corpus(folder: Path) -> None:
    corpus = open_corpus(folder / "corpus", "mine")
    corpus.facts()
    for split in corpus.tokens:
        ids = corpus.ids(split)
        corpus.vocabulary.decode(ids[:5])


def _finding(kind: str) -> Subject:
    def make(folder: Path) -> None:
        write_record(folder)
        write_context(folder)
        write_probe(folder)
        write_attention(folder)
        write_samples(folder)
        write_speed(folder)
        write_bench(folder, bench_result("train", 10.0))
        (folder / "truth.json").write_text(json.dumps(TRUTH))

    return Subject(kind, make, kind, lambda f: report_finding(f / kind, "c"), "json")


SUBJECTS = [
    *map(_finding, FINDINGS),
    Subject("checkpoint", _checkpoint, "best.pt", lambda f: checkpoint.load(f / "best.pt")),
    Subject("loss file", _loss_file, "a.npz", lambda f: read_loss_file(f / "a.npz")),
    Subject(
        "token ids",
        lambda f: np.save(f / "a.npy", np.arange(40)),
        "a.npy",
        lambda f: read_ids(f / "a.npy", 100).sum(),
    ),
    Subject("experiment", _spec, "spec.yaml", lambda f: load_experiment(f / "spec.yaml"), "yaml"),
    Subject("experiment's bytes", _spec, "spec.yaml", lambda f: load_experiment(f / "spec.yaml")),
    *(_of_run(name) for name in ("status.json", "facts.json", "summary.json", "mlflow.json")),
    _of_run("evaluations/one.json"),
    *(_of_run(name, "lines") for name in ("metrics.jsonl", "timings.jsonl")),
    _of_run("config.yaml", "yaml"),
    Subject("run: spec.yaml", _run, "results/small/spec.yaml", _show, "yaml"),
    Subject("zip", _zip, "a", _extract),
    Subject("tar", _tar, "a", _extract),
    Subject("tar.gz", lambda f: _tar(f, "w:gz"), "a", _extract),
    Subject("tar.bz2", lambda f: _tar(f, "w:bz2"), "a", _extract),
    *(
        Subject(f"Hugging Face: {name}", _golden(case), name, read_hf, kind)
        for case, name, kind in (
            ("plain", "config.json", "json"),
            ("plain", "pytorch_model.bin", "bytes"),
            ("narrow", "model.safetensors", "bytes"),
            ("shared", "model.safetensors.index.json", "json"),
            ("shared", "model-00002-of-00003.safetensors", "bytes"),
        )
    ),
    *(
        Subject(
            f"torch, {'zip' if zipped else 'before 1.6'}",
            partial(_torch, zipped=zipped),
            "model.pt",
            lambda f: read_torch(f / "model.pt"),
        )
        for zipped in (True, False)
    ),
    *(
        Subject(f"TensorFlow: {name}", _tf, name, lambda f: read_tf(f / "shared"))
        for name in ("shared.index", "shared.data-00000-of-00001")
    ),
    Subject("TensorFlow: npz", _tf_npz, "a.npz", lambda f: read_tf(f / "a.npz")),
    *(
        Subject(f"corpus: {name}", _corpus, f"corpus/{name}", _open_corpus, kind)
        for name, kind in (
            ("corpus.json", "json"),
            ("vocabulary.json", "json"),
            ("train.ids", "bytes"),
        )
    ),
]

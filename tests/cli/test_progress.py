"""Live progress: plain lines where there is no terminal, bars where there is one."""

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from tests.records.as_record import append_line
from tests.runs.trial import plan_of, prepared_job, write_spec, write_text
from txlbench.cli import progress
from txlbench.cli.progress import ProgressDisplay, window_progress
from txlbench.config.run_config import CorpusConfig
from txlbench.data.prepare import prepare
from txlbench.records.schema import Failure, RunState


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A planned run with the files that its process would have begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec()
    (planned,) = plan_of()
    prepared_job(planned)
    return planned


class Screen:
    """A display and what it printed."""

    def __init__(self, terminal=False):
        self.file = io.StringIO()
        console = Console(file=self.file, force_terminal=terminal, width=120)
        self.display = ProgressDisplay(console)

    @property
    def text(self):
        return self.file.getvalue()

    @property
    def lines(self):
        return self.text.splitlines()


TWO_BITS = 2 * math.log(2)


def at_step(run, step, loss=TWO_BITS, speed=320.0):
    """The run logged a step."""
    run.directory.start()
    append_line(run.directory.metrics_file, step=step, train_loss=loss)
    append_line(run.directory.timings_file, step=step, tokens_per_second=speed)


def look(screen):
    """A tick that does not wait for the next second."""
    screen.display._next_look = 0.0
    screen.display.tick()


def test_a_plain_line_tells_step_loss_speed_and_time_left(run):
    screen = Screen()
    screen.display.start([run], 2, 1)
    at_step(run, 2)
    look(screen)
    assert screen.lines == [
        "1 run, 1 at a time, 2 done before",
        "trial (seed 1): step 2/12, train 2.000 bpc, 320 tokens/s, 0:01 left",  # 10 x 32 tokens
    ]


def test_plain_lines_are_ten_seconds_apart(run, monkeypatch):
    screen = Screen()
    screen.display.start([run], 0, 1)
    for step in (2, 3, 4):
        at_step(run, step)
        look(screen)
    assert len(screen.lines) == 2
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    look(screen)
    look(screen)
    assert len(screen.lines) == 3  # a step that was shown is not shown again


def test_words_are_shown_as_perplexity(tmp_path, run):
    write_spec({"corpus.level": "word"})
    (words,) = plan_of()
    prepared_job(words)
    at_step(words, 2, loss=math.log(50))
    screen = Screen()
    screen.display.start([words], 0, 1)
    look(screen)
    assert "train 50.00 ppl" in screen.text


def test_a_huge_loss_stops_nothing(run):
    write_spec({"corpus.level": "word"})
    (words,) = plan_of()
    prepared_job(words)
    at_step(words, 2, loss=1e6)
    screen = Screen()
    screen.display.start([words], 0, 1)
    look(screen)
    assert "ppl" in screen.text


def test_after_the_last_step_it_is_measuring(run):
    at_step(run, 12)
    run.directory.set_state(RunState.TRAINED)
    screen = Screen()
    screen.display.start([run], 0, 1)
    look(screen)
    assert screen.lines[-1] == "trial (seed 1): measuring"


def test_runs_that_wait_are_not_shown(run):
    screen = Screen()
    screen.display.start([run], 0, 1)
    look(screen)
    assert len(screen.lines) == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_the_end_of_a_run_is_a_line_with_its_error(run, terminal):
    screen = Screen(terminal)
    screen.display.start([run], 0, 1)
    at_step(run, 4)
    look(screen)
    error = Failure(type="Diverged", message="the loss is nan [at] step 5", where="x")
    run.directory.set_state(RunState.DIVERGED, error)
    screen.display.ended(run, RunState.DIVERGED)
    screen.display.stop()
    assert "trial (seed 1): diverged: Diverged: the loss is nan [at] step 5" in screen.text


def test_a_bar_has_the_same_on_a_terminal(run):
    screen = Screen(terminal=True)
    screen.display.start([run], 0, 1)
    at_step(run, 6)
    look(screen)
    screen.display._bars.refresh()
    screen.display.stop()
    assert "trial (seed 1)" in screen.text
    assert "step 6/12, train 2.000 bpc, 320 tokens/s" in screen.text


def test_nothing_to_run_is_said(run):
    screen = Screen()
    screen.display.start([], 5, 1)
    assert screen.lines == ["nothing to run, 5 done before"]


def test_warnings_and_the_corpus_are_said(tmp_path, run):
    corpus = prepare(run.config.corpus)
    screen = Screen()
    screen.display.corpus(corpus)
    screen.display.warn("row 'a [b]': careful")
    assert screen.lines[0] == (
        f"mine: train {corpus.tokens['train']:,}, valid {corpus.tokens['valid']:,}, "
        f"test {corpus.tokens['test']:,} tokens, 256 symbols"
    )
    assert screen.lines[-1] == "Warning: row 'a [b]': careful"


def test_the_share_of_unknown_words_is_warned_about(tmp_path):
    """Train has <unk> too, as every WikiText; the end of a line is a token."""
    texts = {"path": "a <unk> b <unk> c <unk> a b\na\n" * 40, "valid": "a <unk> b\nc\n"}
    texts |= {"test": "zebra <unk> b\n"}
    files = {name: str(tmp_path / name) for name in texts}
    for name, text in texts.items():
        Path(files[name]).write_text(text)
    screen = Screen()
    screen.display.corpus(prepare(CorpusConfig(name="words", level="word", **files)))
    told = "\n".join(screen.lines)
    assert "tokens that are <unk>: train 27.3%, valid 16.7%, test 50.0%" in told


def test_windows_of_all_models_and_the_time_left_are_told(monkeypatch, capsys):
    """The first part warms up; ten windows a second after it."""
    clock = iter([0.0, 5.0, 5.5, 7.0, 9.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with window_progress() as told:
        for reference, done in [("a", 0), ("a", 20), ("a", 25), ("a", 40), ("b", 60), ("b", 170)]:
            told(reference, done, 600)
    assert capsys.readouterr().err.splitlines() == [
        *("600 windows to read", "a: 40 of 600 windows, 0:56 left"),
        "b: 170 of 600 windows, 0:43 left",
    ]


@pytest.mark.parametrize(("done", "is_told"), [(None, False), (20, True), (100, False)])
def test_an_interrupted_reader_is_told_how_to_go_on(capsys, done, is_told):
    def interrupted():
        with window_progress() as told:
            if done is not None:
                told("a", done, 100)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ("the same command goes on" in capsys.readouterr().err) == is_told

"""Pages in a real browser without a network; `make test-services` installs it."""

import json
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.reporting import (
    attention_records,
    context_records,
    probe_records,
    recl_records,
    sample_records,
    speed_records,
    test_truth,
)
from tests.reporting.laboratory import Laboratory
from txlbench.records.experiment_directory import FINDINGS
from txlbench.records.schema import RunState
from txlbench.reporting.findings import report_finding
from txlbench.reporting.pages.result_index import write_index
from txlbench.reporting.report import report

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
PUBLISHED = [*sorted(ROOT.glob("experiments/*.html")), *sorted(ROOT.glob("results/**/*.html"))]
PLACES = [
    *("index.html", "small/report.html", "wide/report.html"),
    *(f"{Path(name).stem}/{Path(name).stem}.html" for name in FINDINGS),
    *PUBLISHED,
]
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DESK, PHONE = (1280, 800), (390, 844)
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Experiments with failures and many long labels, a finding of each kind, and the index."""
    folder = tmp_path_factory.mktemp("pages") / "results"
    laboratory = Laboratory(folder)
    small = laboratory.experiment()
    for number, (line, config, run) in enumerate(laboratory.runs(small)):
        if number == 4:
            laboratory.fail(run, config, line, RunState.FAILED, "out of memory " * 20)
            run.error_file.write_text("Traceback (most recent call last):\n" + "x" * 300)
        else:
            laboratory.finish(run, config, line)
    rows = [
        {"label": f"a row of a long name that says all of number {k}", "set": {"train.lr": k / 1e4}}
        for k in range(1, 19)
    ]
    wide = laboratory.finished(name="wide", rows=rows, seeds=[1])
    makers = {
        "recl": recl_records.write_record,
        "context": context_records.write_record,
        "probe": probe_records.write_record,
        "attention": attention_records.write_record,
        "samples": sample_records.write_record,
        "speed": speed_records.write_record,
        "truth": lambda path: (path / "truth.json").write_text(json.dumps(test_truth.RECORD)),
        "bench": lambda path: speed_records.write_bench(
            path, speed_records.bench_result("train", 10.0)
        ),
    }
    for name in map(Path, FINDINGS):
        (folder / name.stem).mkdir()
        makers[name.stem](folder / name.stem)
        report_finding(folder / name.stem / name, "typed")
    for experiment in (small, wide):
        report(experiment, "txlbench ablate small.yaml")
    write_index(folder)
    return folder


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium: not installed; `make test-services` does it"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, headless=True, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser, results):
    """Opens a page; at the end nothing may have been complained of, or asked for outside it."""
    contexts, heard = [], []

    def opened(place, size=DESK, scheme="light"):
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("requestfailed", lambda request: heard.append(f"failed: {request.url[:100]}"))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or heard.append(r.url))
        page.goto((results / place).resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert heard == []


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_everybody(visit, place, scheme):
    """By the rules of axe, contrast of WCAG's level AA among them."""
    import axe_playwright_python

    page = visit(place, scheme=scheme)
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"]] == []
    assert "color-contrast" in [each["id"] for each in found["passes"]]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 17, 17)"
    )


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_telephone_need_not_scroll_sideways(visit, place):
    page = visit(place, PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    narrow = page.evaluate(
        "[...document.querySelectorAll('figure > svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert all(300 <= width <= PHONE[0] for width in narrow)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_every_link_leads_somewhere(visit, place, results):
    page = visit(place)
    links = page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert links
    for link in links:
        if link.startswith("#"):
            page.evaluate(f"location.hash = {json.dumps(link)}")
            top = page.evaluate(f"document.querySelector({json.dumps(link)}).offsetTop")
            bottom = page.evaluate("document.documentElement.scrollHeight - innerHeight")
            assert abs(page.evaluate("scrollY") - min(top, bottom)) <= 2
        else:
            assert ((results / place).parent / unquote(link)).is_file()
            page.click(f'a[href="{link}"]')
            assert page.title()
            page.go_back()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_answer_stands_in_the_first_screen(visit, place):
    page = visit(place)
    assert (results_size := len(page.content().encode())) < MOST_BYTES, results_size
    first = "td.answers" if Path(place).name == "index.html" else "#answer dd"
    for size in (DESK, PHONE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        box = page.locator(first).first.bounding_box()
        assert box["y"] + box["height"] <= size[1]
        assert any(letter.isdigit() for letter in page.locator(first).first.inner_text())


def test_a_click_on_a_header_sorts_the_table(visit):
    page = visit("small/report.html")
    head = page.locator("#table th", has_text="bpc best").first
    index = head.evaluate("e => e.cellIndex")
    cells = (
        f"[...document.querySelectorAll('#table tbody tr')].map(r => r.cells[{index}].innerText)"
    )
    unsorted = page.evaluate(cells)
    head.locator("button").click()
    values = [float(cell.lstrip("*").split()[0]) for cell in page.evaluate(cells)]
    assert values == sorted(values)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    values = [float(cell.lstrip("*").split()[0]) for cell in page.evaluate(cells)]
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    assert sorted(unsorted) == sorted(page.evaluate(cells))


def test_paper_is_white_and_holds_the_whole_width(visit):
    page = visit("wide/report.html", scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 26, 26)"
    assert page.evaluate("getComputedStyle(document.querySelector('svg')).filter") == "none"
    assert page.pdf(format="A4")[:5] == b"%PDF-"

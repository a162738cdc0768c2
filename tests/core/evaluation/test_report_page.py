"""The report as an HTML page: its content, and its behaviour in a browser."""

import re

import pytest

from support.browser import CHROMIUM, opened_page
from wiserouter.evaluation.plots import new_figure
from wiserouter.evaluation.report import ReportSection, page_of

ROWS = [["wr-offline", "0.70 ± 0.01"], ["zero", "**0.90** †"], ["random", "-"], ["<i>", "+0.10"], ["best", "1,000.5"]]


def drawn():
    figure = new_figure(height=2.0)
    figure.subplots().plot([0.0, 1.0], [0.0, 1.0])
    return figure


def page():
    sections = [
        ReportSection("table1", "Quality", "**Bold** & <script>alert(1)</script>.", ("method", "quality"), ROWS, drawn),
        ReportSection("other", "Other", "Text.", ("method", "spend"), [["b", "2"], ["a", "1"]]),
    ]
    return page_of("Bench on <b>", "Terms.", sections, {"zero": "is given much"}, {"command": "wiserouter bench '<&>'"})


def test_a_page_is_complete_and_escapes_its_texts():
    text = page()
    assert "<script>alert" not in text
    assert "<title>Bench on &lt;b&gt;</title>" in text
    assert '<th scope="row">&lt;i&gt;</th>' in text
    assert "<strong>0.90</strong> †" in text
    assert "wiserouter bench &#x27;&lt;&amp;&gt;&#x27;" in text
    assert not re.findall(r'(?:src|href)="(?!#|data:image/svg)', text)
    assert text == page()


def names(tab, table="table1"):
    return tab.run(f"[...document.querySelectorAll('#{table} tbody th')].map(th => th.textContent)")


def marks(tab):
    return tab.run("[...document.querySelectorAll('#table1 thead th')].map(th => th.getAttribute('aria-sort'))")


UP = ["<i>", "wr-offline", "zero", "best", "random"]
DOWN = ["best", "zero", "wr-offline", "<i>", "random"]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_a_browser_renders_and_sorts_it(tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(), encoding="utf-8")
    with opened_page(tmp_path / "profile") as tab:
        tab.open(file.as_uri())
        assert tab.run("document.querySelector('h1').textContent") == "Bench on <b>"
        assert tab.run("document.images[0].decode().then(() => document.images[0].naturalWidth > 100)")
        assert names(tab) == [row[0] for row in ROWS]
        tab.run("document.querySelectorAll('#table1 button')[1].click()")
        assert (names(tab), marks(tab)) == (UP, ["none", "ascending"])
        tab.run("document.querySelectorAll('#table1 button')[1].focus()")
        tab.press("Enter", "\r")
        assert (names(tab), marks(tab)) == (DOWN, ["none", "descending"])
        assert names(tab, "other") == ["b", "a"]
        tab.run("new Promise(done => { addEventListener('hashchange', done); location.hash = 'sort=other:0'; })")
        assert names(tab, "other") == ["a", "b"]
        paper = "getComputedStyle(document.body).backgroundColor"
        assert tab.run(paper) == "rgb(255, 255, 255)"
        tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert tab.run(paper) == "rgb(21, 25, 30)"
        tab.send("Emulation.setEmulatedMedia", media="print")
        assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert not tab.met("Log.entryAdded")
        assert not tab.met("Runtime.exceptionThrown")
        asked = {each["request"]["url"].split(":")[0] for each in tab.met("Network.requestWillBeSent")}
        assert asked <= {"file", "data"}


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_a_link_sorts(tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(), encoding="utf-8")
    with opened_page(tmp_path / "profile") as tab:
        tab.open(f"{file.as_uri()}#sort=table1:1:descending")
        assert names(tab) == DOWN

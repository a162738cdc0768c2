"""The operator's page of a real proxy in a real browser: its figures are live, and nothing shown is executed."""

import base64
import json
import time
from urllib.parse import quote

import httpx
import pytest

from support.browser import CHROMIUM, opened_page
from support.operated_proxy import MODELS, deployment, seed, write_config
from support.operator_browser import put, show, violations, wait_for
from support.proxies import running_proxy
from support.questions import question

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]

HOSTILE = [
    "<img src=x onerror=window.ran=1>",
    '"><script>window.ran=1</script>',
    "<svg onload=window.ran=1>",
    "</textarea><iframe src=javascript:window.ran=1>",
    "javascript:window.ran=1//",
    "{{constructor.constructor('window.ran=1')()}}",
    "line one\nline two\u2028line three",
    "&lt;b&gt;&#x27;" + "W" * 120,
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    seed(folder, time.time(), per_day=12)
    wild = [deployment(MODELS[i % 3], name, "wild") for i, name in enumerate(HOSTILE)]
    for row, name in zip(wild, HOSTILE, strict=True):
        row["model_info"] |= {"id": f"wild-{hash(name)}", "wiserouter_model": name}
    others = {"by": "team", "budgets": {}, "others": {"budget_usd": 1.0, "requests": 100}}
    groups = {"wild": {"budget_usd": 1.0, "requests": 500, "scopes": others, "contexts": 1, "seed": 0}}
    groups["unused"] = {"budget_usd": 1.0, "requests": 500}
    wild.append(deployment(MODELS[0], "an answer", "unused") | {"model_info": {"id": "unused"}})
    with running_proxy(write_config(folder, wild, groups), folder / "proxy.log") as (base, key, _):
        with httpx.Client(base_url=base, timeout=30) as client:
            traffic(client)
        yield base, key


def traffic(client):
    """Call models for teams with ordinary and with odd names, and rate with odd comments."""
    import numpy as np

    rng = np.random.default_rng(0)
    for i, team in enumerate([*HOSTILE, "research", "search"] * 2):
        head = {"authorization": f"Bearer sk-of-{quote(team, safe='')}"}
        body = {"messages": [{"role": "user", "content": question(rng, i % 4)}]}
        for model in ("wild", "support"):
            answer = client.post("/v1/chat/completions", json={"model": model, **body}, headers=head)
            assert answer.status_code == 200, answer.text
            rating = {"id": answer.headers["x-wiserouter-decision"], "score": 0.5, "comment": HOSTILE[i % len(HOSTILE)]}
            assert client.post("/wiserouter/feedback", json=rating, headers=head).status_code == 200


@pytest.fixture
def tab(tmp_path):
    with opened_page(tmp_path) as tab:
        yield tab


def status(proxy, group="support"):
    answer = httpx.get(f"{proxy[0]}/wiserouter/status", headers={"authorization": f"Bearer {proxy[1]}"}, timeout=30)
    return answer.json()["groups"][group]


def text(tab, selector):
    return tab.run(f"document.querySelector({json.dumps(selector)}).innerText")


def check_quiet(tab, proxy, refused=0):
    """Check that the page has met no error but so many refusals, and asked no one but its proxy."""
    met = [one["entry"]["text"] for one in tab.met("Log.entryAdded")]
    assert ["409" in one for one in met] == [True] * refused, met
    assert tab.met("Runtime.exceptionThrown") == tab.met("Runtime.consoleAPICalled") == []
    asked = [one["request"]["url"] for one in tab.met("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(f"{proxy[0]}/wiserouter/")] == []


TEAMS_OF = {"support": 3, "wild": len(HOSTILE) + 2}
READY = "document.querySelectorAll('#decisions tbody tr').length && document.querySelectorAll('#plan canvas').length"


def test_the_page_shows_live_figures_and_its_slider_asks_for_plans(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    now = status(proxy)
    assert f"${now['amount_usd'] - now['spent_usd']:.2f} not spent of $60.00" in text(tab, "#budget .big")
    assert (
        tab.run("document.querySelectorAll('#budget canvas, #plan canvas, #savings canvas, #spend canvas').length") == 4
    )
    for card in ("budget", "plan", "savings", "spend", "kinds", "models", "teams", "feedback", "decisions", "health"):
        assert tab.run(f"document.getElementById('{card}').checkVisibility()"), card
    assert all(word in text(tab, "#kinds") for word in ("theorem", "court", "regex"))
    tab.run("document.querySelector('input[value=kind]').click()")
    wait_for(tab, "document.querySelector('#spend .legend').innerText.includes('theorem')")
    assert "kind of question" in tab.run("document.querySelector('#spend [role=img]').getAttribute('aria-label')")
    research = f"${now['scopes']['team:research']['windows'][0]['spent_usd']:.2f}"
    assert research in text(tab, "#teams")
    before = text(tab, "#plan .big")
    slider = "document.getElementById('plan-slider')"
    at = int(tab.run(f"{slider}.value"))
    tab.run(f"{slider}.focus()")
    for _ in range(3):
        tab.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
        tab.send("Input.dispatchKeyEvent", type="keyUp", key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    assert int(tab.run(f"{slider}.value")) == at - 3
    wait_for(tab, f"document.querySelector('#plan .big').innerText != {json.dumps(before)}")
    put(tab, "#plan-slider", 20)
    wait_for(tab, f"parseFloat(document.querySelector('#plan .big').innerText) < {float(before.split()[0]) - 0.1}")
    assert "quality" in tab.run(f"{slider}.getAttribute('aria-valuetext')")
    tab.run("document.querySelector('#decisions tbody button').click()")
    wait_for(tab, "document.querySelector('.explained')")
    assert "Worth is quality less" in text(tab, ".explained")
    check_quiet(tab, proxy)


def test_every_chart_has_its_table(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    tab.run("document.querySelectorAll('figure summary').forEach(one => one.click())")
    wait_for(tab, "[...document.querySelectorAll('figure:has(canvas)')].every(one => one.querySelector('tbody tr'))")
    labels = tab.run("[...document.querySelectorAll('[role=img]')].map(one => one.getAttribute('aria-label'))")
    assert all(len(label) > 20 for label in labels)
    check_quiet(tab, proxy)


def read_again(tab):
    """Let the page read its figures, as it does every ten seconds, and wait until it shows them."""
    tab.run("window.was = document.querySelector('#models table')")
    tab.run("document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(tab, "document.querySelector('#models table') != window.was")


def test_a_table_stays_scrolled_and_keeps_the_focus_while_the_page_reads_again(proxy, tab):
    show(tab, *proxy, width=360)
    wait_for(tab, READY)
    region = "document.querySelector('#models .scroll')"
    tab.run(f"{region}.focus(); {region}.scrollTo(40, 0)")
    read_again(tab)
    assert tab.run(f"[{region}.scrollLeft, document.activeElement == {region}]") == [40, True]


def test_a_model_that_is_retired_by_keyboard_is_shown_as_retired(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    for chip in ("'retired'", "undefined"):
        tab.run("document.querySelector('#models tbody button').focus()")
        tab.press("Enter", "\r")
        tab.press("Enter", "\r")  # the dialog has the focus on its first button, which confirms
        wait_for(tab, f"document.querySelector('#models .chip')?.innerText == {chip}")
        assert tab.run("document.activeElement == document.querySelector('#models tbody button')")


def test_a_group_without_a_plan_does_not_show_that_of_the_group_before(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    put(tab, "#choices select", "unused", "change")
    wait_for(tab, "document.querySelector('#plan .note:not([hidden])')")
    assert "no plan" in text(tab, "#plan .note")
    assert not tab.run("document.querySelector('#plan .big').checkVisibility()")
    put(tab, "#choices select", "support", "change")
    wait_for(tab, "document.querySelector('#plan .big').checkVisibility()")


@pytest.mark.parametrize("width", [360, 1_000])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("group", ["support", "wild"])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(proxy, tab, width, dark, group):
    show(tab, *proxy, width=width, dark=dark)
    wait_for(tab, READY)
    put(tab, "#choices select", group, "change")
    wait_for(tab, f"document.querySelectorAll('#teams tbody tr').length == {TEAMS_OF[group]}")
    tab.run("document.querySelectorAll('summary').forEach(one => one.click())")
    tab.run("document.querySelector('#decisions tbody button').click()")
    wait_for(tab, "document.querySelector('.explained')")
    assert violations(tab) == []
    assert tab.run("document.documentElement.scrollWidth") <= width
    check_quiet(tab, proxy)


def test_hostile_names_are_shown_and_nothing_is_executed(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    put(tab, "#choices select", "wild", "change")
    wait_for(tab, f"document.querySelectorAll('#teams tbody tr').length == {TEAMS_OF['wild']}")
    wait_for(tab, "document.querySelector('#decisions tbody tr')")
    shown = tab.run("document.querySelector('main').textContent")
    for name in HOSTILE:
        assert name in shown
        assert f"team:{name}" in shown
    tab.run("document.querySelector('#decisions tbody button').click()")
    wait_for(tab, "document.querySelector('.explained')")
    tab.run("document.querySelectorAll('summary').forEach(one => one.click())")
    for i in range(len(HOSTILE) + 2):
        tab.run(f"document.querySelectorAll('#teams tbody button')[{i}].click()")
        wait_for(tab, "document.querySelectorAll('#teams tbody tr').length")
        tab.run("new Promise(done => setTimeout(done, 150))")
    assert tab.run("window.ran === undefined")
    assert tab.run("document.querySelectorAll('main :is(img, svg, script, iframe, textarea, object)').length") == 0
    check_quiet(tab, proxy)


def test_only_the_keys_of_administrators_show_figures_and_no_key_is_kept(proxy, tab):
    show(tab, proxy[0], "sk-of-research")
    wait_for(tab, "document.querySelector('[role=alert]')")
    assert "administrator" in text(tab, "main")
    assert tab.run("document.querySelectorAll('canvas, table').length") == 0
    tab.run(f"document.getElementById('key').value = {json.dumps(proxy[1])}")
    tab.run("document.querySelector('form button').click()")
    wait_for(tab, READY)
    kept = tab.run("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert "sk-" not in kept
    assert proxy[1] not in tab.run("document.documentElement.outerHTML")


def click(tab, name):
    """Click the button of a name, in the open dialog where there is one."""
    buttons = "[...(document.querySelector('dialog') ?? document).querySelectorAll('button')]"
    tab.run(f"{buttons}.find(one => one.textContent.trim().startsWith({json.dumps(name)})).click()")


def called(proxy):
    body = {"model": "support", "messages": [{"role": "user", "content": "please sort this python list"}]}
    head = {"authorization": "Bearer sk-of-search"}
    return httpx.post(f"{proxy[0]}/v1/chat/completions", json=body, headers=head, timeout=30)


def test_a_budget_is_raised_paused_and_resumed_in_dialogs(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    click(tab, "Raise the budget")
    assert tab.run("document.querySelector('dialog .main').disabled")
    put(tab, "#field-by-in-usd", "5")
    assert "$60.00 becomes $65.00 in this window only" in text(tab, "dialog")
    assert violations(tab) == []
    click(tab, "Raise it")
    wait_for(tab, "document.querySelector('#budget .big').innerText.endsWith('of $65.00')")
    assert status(proxy)["amount_usd"] == 65.0
    click(tab, "Pause")
    put(tab, "#field-reason-for-those-who-are-refused", f"audit {HOSTILE[0]}")
    click(tab, "Pause it")
    wait_for(tab, "document.querySelector('#budget .note')?.innerText.includes('paused')")
    assert HOSTILE[0] in text(tab, "#budget .note")
    refused = called(proxy)
    assert (refused.status_code, "audit" in refused.text) == (429, True)
    click(tab, "Resume")
    click(tab, "Resume it")
    wait_for(tab, "!document.querySelector('#budget .note')?.innerText.includes('paused')")
    assert called(proxy).status_code == 200
    check_quiet(tab, proxy)


def test_a_model_is_retired_and_brought_back_in_dialogs(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    click(tab, "Retire")
    name = text(tab, "dialog h2").removeprefix("Retire ")
    assert violations(tab) == []
    click(tab, "Retire it")
    wait_for(tab, "document.querySelector('#models .chip')?.innerText == 'retired'")
    assert status(proxy)["models"][name]["retired"]
    click(tab, "Bring back")
    click(tab, "Bring it back")
    wait_for(tab, "!document.querySelector('#models .chip')")
    assert not status(proxy)["models"][name]["retired"]
    check_quiet(tab, proxy)


def test_share_and_price_of_a_model_are_changed_in_a_dialog(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    click(tab, "Change")
    name = text(tab, "dialog h2").removeprefix("Share and price of ")
    before = status(proxy)["models"][name]["price_usd_per_token"]
    assert tab.run("document.querySelector('dialog .main').disabled")
    assert violations(tab) == []
    put(tab, "#field-largest-share-in-", "25")
    put(tab, "#field-cache-reads-in-usd-per-million-tokens", "0.05")
    assert "at most 25 %" in text(tab, "dialog")
    click(tab, "Change it")
    wait_for(tab, "document.querySelector('#models .chip')?.innerText == 'at most 25 %'")
    model = status(proxy)["models"][name]
    assert (model["max_share"], model["price_usd_per_token"]) == (0.25, {**before, "cache_read": pytest.approx(5e-8)})
    click(tab, "Change")
    for kind in ("input", "output", "cache-reads"):
        put(tab, f"#field-{kind}-in-usd-per-million-tokens", "")
    put(tab, "#field-largest-share-in-", "")
    assert "configuration again" in text(tab, "dialog")
    click(tab, "Change it")
    wait_for(tab, "!document.querySelector('#models .chip')")
    model = status(proxy)["models"][name]
    assert (model["max_share"], model["price_usd_per_token"]) == (None, before)
    check_quiet(tab, proxy)


def test_other_terms_the_mode_and_the_end_of_a_budget_are_ordered_in_dialogs(proxy, tab):
    show(tab, *proxy)
    wait_for(tab, READY)
    click(tab, "Mode")
    assert violations(tab) == []
    put(tab, "#field-mode", "shadow", "change")
    put(tab, "#field-mode", "shadow")
    put(tab, "#field-share-that-it-acts-on-in-", "150")
    assert tab.run("document.querySelector('dialog .main').disabled")
    put(tab, "#field-share-that-it-acts-on-in-", "50")
    assert "in mode route now" in text(tab, "dialog")
    click(tab, "Change the mode")
    wait_for(tab, "document.querySelector('#budget .big').innerText.endsWith('of $30.00')")
    assert status(proxy)["mode"] == {"mode": "shadow", "share": 0.5}
    click(tab, "Mode")
    assert "shadow and acts on 50 % now" in text(tab, "dialog")
    put(tab, "#field-mode", "")
    click(tab, "Change the mode")
    wait_for(tab, "document.querySelector('#budget .big').innerText.endsWith('of $60.00')")
    assert status(proxy)["mode"] == {"mode": "route", "share": 1.0}
    click(tab, "Other terms")
    assert tab.run("document.querySelector('dialog .main').disabled")
    assert violations(tab) == []
    put(tab, "#field-limit", "hard")
    click(tab, "Change it")
    wait_for(tab, "document.querySelector('dialog [role=alert]:not([hidden])')")
    assert "needs a budget that is paused" in text(tab, "dialog [role=alert]")
    put(tab, "#field-limit", "")
    put(tab, "#field-amount-in-usd", "90")
    put(tab, "#field-requests", "5000")
    click(tab, "Change it")
    wait_for(tab, "document.querySelector('#budget .big').innerText.endsWith('of $90.00')")
    teams = "[...document.querySelectorAll('#teams tbody button')]"
    tab.run(f"{teams}.find(one => one.textContent == 'team:assistants').click()")
    wait_for(tab, "document.querySelector('#budget .big')?.innerText.includes('of $15.00')")
    click(tab, "End")
    assert "for good" in text(tab, "dialog")
    click(tab, "End it")
    wait_for(tab, "document.querySelector('#budget .note')?.innerText.includes('was ended')")
    wait_for(tab, "!document.querySelector('#budget .actions button')")
    check_quiet(tab, proxy, refused=1)


def test_an_administrator_who_may_only_view_sees_why_a_change_is_refused(proxy, tab):
    show(tab, proxy[0], "sk-viewer")
    wait_for(tab, READY)
    click(tab, "Pause")
    click(tab, "Pause it")
    wait_for(tab, "document.querySelector('dialog [role=alert]:not([hidden])')")
    assert "administrator" in text(tab, "dialog")
    click(tab, "Cancel")
    assert not tab.run("document.querySelector('dialog')")
    assert called(proxy).status_code == 200


def test_who_is_signed_in_to_litellm_needs_no_key(proxy, tab):
    claims = base64.urlsafe_b64encode(json.dumps({"key": proxy[1], "user_role": "proxy_admin"}).encode()).decode()
    tab.send("Network.setCookie", name="token", value=f"e30.{claims.rstrip('=')}.s", url=proxy[0])
    tab.open(f"{proxy[0]}/wiserouter/")
    wait_for(tab, READY)
    check_quiet(tab, proxy)

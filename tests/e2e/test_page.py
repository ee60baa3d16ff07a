"""The page at `/` in a real browser, asked by hand, of a real service of two models."""

from __future__ import annotations

import csv
import re
import shutil
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.e2e.browser import DESKTOP, PHONE, TABS, Visit, answer_of, typical_row, visiting
from tests.e2e.support import serve
from tests.service.test_security import KEY, stored
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

HEADER = "Weight,Horsepower,Automatic,Year,Origin/plant"


@pytest.fixture
def visit(window: Visit) -> Iterator[Visit]:
    """Return the page, loaded anew and answered; at the end it has said nothing and asked no other host."""
    window.forget()
    yield window.go()
    window.check(expected=("status of 422", "status of 503", "ERR_FAILED"))


def shown_mean(visit: Visit) -> float:
    return float(visit.text("#headline strong").replace("\u2212", "-").replace("\u202f", ""))


def choose_file(visit: Visit, content: str, where: str = "#file") -> None:
    visit.page.set_input_files(where, {"name": "rows.csv", "mimeType": "text/csv", "buffer": content.encode()})


def test_it_starts_with_the_answer_for_the_typical_row(visit: Visit, site: str) -> None:
    answer = answer_of(site, "cars", [typical_row(site, "cars")])
    assert shown_mean(visit) == pytest.approx(answer["mean"][0], abs=0.06)
    epistemic = answer["epistemic_std"][0] ** 2 > 0.6 * answer["std"][0] ** 2  # what the page calls mostly epistemic
    assert visit.text("#split-words").startswith(
        ("Mostly epistemic", "Almost all epistemic") if epistemic else ("Mostly noise", "Almost all noise", "About")
    )
    assert "90 % band from" in (visit.page.get_attribute("#density", "aria-label") or "")
    visit.check()  # a plain visit says nothing at all


def test_every_change_is_answered(visit: Visit, site: str) -> None:
    visit.fill("Weight", "2000")
    visit.page.fill("#threshold", "31")
    visit.answered()
    answer = answer_of(site, "cars", [{**typical_row(site, "cars"), "Weight": 2000}], thresholds=[31])
    assert shown_mean(visit) == pytest.approx(answer["mean"][0], abs=0.06)
    chance = 100 * answer["exceedance"]["values"][0][0]
    assert float(visit.text("#exceedance").rstrip(" %\u202f").lstrip("<>")) == pytest.approx(chance, abs=0.6)
    assert visit.field("Weight").locator("input[type=range]").input_value() == "2000"


def test_warnings_and_errors_stand_at_their_field(visit: Visit) -> None:
    note, box = visit.field("Weight").locator(".note"), visit.field("Weight").locator("input[type=number]")
    box.fill("9000")
    visit.answered()
    assert "above the training range" in note.inner_text()
    box.fill("")
    visit.answered()
    assert note.inner_text() == "Enter a number."
    assert box.get_attribute("aria-invalid") == "true"
    problem = {
        "title": "Bad input",
        "status": 422,
        "detail": "",
        "errors": [{"pointer": "/inputs/0/Weight", "message": "no"}],
    }
    visit.page.route("**/predict", lambda route: route.fulfill(status=422, json=problem))
    box.fill("3001")
    visit.answered()
    assert note.inner_text() == "No"
    visit.page.unroute("**/predict")
    box.fill("3000")
    visit.answered()
    assert note.inner_text() == ""
    assert box.get_attribute("aria-invalid") is None


def test_a_cell_can_be_missing(visit: Visit, site: str) -> None:
    visit.field("Horsepower").locator("input[type=checkbox]").check()
    visit.answered()
    answer = answer_of(site, "cars", [{**typical_row(site, "cars"), "Horsepower": None}])
    assert shown_mean(visit) == pytest.approx(answer["mean"][0], abs=0.06)
    assert visit.field("Horsepower").locator("input[type=number]").is_disabled()


def test_a_sweep_goes_along_any_feature(visit: Visit) -> None:
    for feature in ("Weight", "Year", "Automatic", "Origin/plant"):
        visit.choose("#sweep-feature", feature)
        visit.wait(f'#sweep[aria-label*="along {feature}"] svg')
        visit.answered()
    assert "training rows" in visit.text("#sweep-legend")


def test_a_sweep_reaches_as_far_as_the_row(visit: Visit) -> None:
    visit.fill("Weight", "9000")
    visit.answered()
    assert (visit.page.get_attribute("#sweep", "aria-label") or "").endswith("at 9000")


def test_a_sweep_follows_the_row_in_the_chart_that_is_there(visit: Visit) -> None:
    visit.choose("#sweep-feature", "Horsepower")
    visit.wait('#sweep[aria-label*="along Horsepower"] svg')
    visit.answered()
    visit.page.evaluate("() => { document.querySelector('#sweep svg').dataset.kept = 'yes'; }")
    labels = visit.page.locator("#sweep .role-axis-label text")
    before = labels.all_text_contents()
    visit.fill("Weight", "1700")
    visit.answered()
    assert labels.all_text_contents() != before, "the axis of the target reaches as far as the answers"
    assert visit.page.locator("#sweep svg").get_attribute("data-kept") == "yes"


def test_two_inputs_are_compared_by_the_same_draws(visit: Visit, site: str) -> None:
    visit.tab("compare")
    visit.fill("Weight", "1500", "#other")
    visit.wait("#more")
    visit.answered()
    row = typical_row(site, "cars")
    answer = answer_of(site, "cars", [row, {**row, "Weight": 1500}], include=["draws"])
    draws = np.array(answer["draws"])
    mean, doubt, noise = (np.array(answer[key])[:, None] for key in ("mean", "epistemic_std", "aleatoric_std"))
    values = mean + (draws - draws.mean(1, keepdims=True)) * doubt / draws.std(1, keepdims=True)
    random = np.random.default_rng(0)
    observed = values[:, None, :] + noise[:, :, None] * random.standard_normal((2, 2000, 1))
    expected = 100 * float((observed[0] > observed[1]).mean())
    assert float(visit.text("#more").strip("<> %\u202f")) == pytest.approx(expected, abs=2.5)


def test_the_probability_of_more_is_exact_for_normal_rows(visit: Visit) -> None:
    code = """async () => {
      const {exceeds, LEVELS, normalQuantile} = await import('/web/page/numbers/distribution.js');
      const shared = Array.from({length: 4000}, (_, i) => normalQuantile((i + 0.5) / 4000));
      const answer = (ahead, doubt, noise, sign) => ({
        mean: [ahead, 0], std: [0, 1].map(() => Math.hypot(doubt, noise)), epistemic_std: [doubt, doubt],
        aleatoric_std: [noise, noise],
        draws: [shared.map((z) => ahead + doubt * z), shared.map((z) => sign * doubt * z)],
        percentiles: {levels: LEVELS, values: [ahead, 0].map((mean) => LEVELS.map(
          (level) => mean + Math.hypot(doubt, noise) * normalQuantile(level / 100)))}});
      return [answer(0, 1, 1, 1), answer(1, 2, 1, 1), answer(1, 2, 1, -1), answer(3, 1, 0.5, 1)]
        .map((item) => exceeds(item).observed);
    }"""
    # Shared doubt cancels; opposed doubt adds up: std 2 * 2 for the function, sqrt(2) for the noise.
    spreads = [2**0.5, 2**0.5, (4**2 + 2) ** 0.5, 0.5 * 2**0.5]
    exact = [NormalDist().cdf(ahead / spread) for ahead, spread in zip([0, 1, 1, 3], spreads, strict=True)]
    assert visit.page.evaluate(code) == pytest.approx(exact, abs=2e-3)


def test_the_map_shows_means_and_epistemic_uncertainty(visit: Visit) -> None:
    visit.tab("map")
    visit.wait('#map[aria-label^="Consumption"] svg')
    marks = """() => [...document.querySelectorAll("#map .mark-rect.role-mark")].map(
      (it) => it.getBoundingClientRect().toJSON())"""
    cells, below, beside = visit.page.evaluate(marks)
    assert below["top"] >= cells["bottom"], "training rows stand between the map and its axes"
    assert beside["right"] <= cells["left"]
    visit.choose("#map-of", "epistemic_std")
    visit.wait('#map[aria-label^="epistemic std over"] svg')
    visit.answered()


def test_a_link_opens_the_same_page(visit: Visit, browser: Browser, site: str) -> None:
    visit.fill("Weight", "2345")
    visit.field("Horsepower").locator("input[type=checkbox]").check()
    visit.page.fill("#threshold", "25")
    visit.choose("#band", "50")
    visit.tab("compare")
    visit.fill("Weight", "4321", "#other")
    visit.answered()
    with visiting(browser, site) as other:
        other.go(visit.page.url.removeprefix(other.address))
        for selector in ("#headline", "#band-line", "#exceedance", "#more"):
            assert other.text(selector) == visit.text(selector)
        assert other.field("Weight", "#other").locator("input[type=number]").input_value() == "4321"
        other.check()


def test_a_dropped_file_is_scored_and_downloaded(visit: Visit, site: str, tmp_path: Path) -> None:
    lines = [HEADER, *(f'{1500 + 10 * i},{80 + i % 90},true,1975-06-01,"USA"' for i in range(300))]
    content = "\r\n".join(lines)
    drop = """(content) => {
      const data = new DataTransfer();
      data.items.add(new File([content], 'fleet.csv', {type: 'text/csv'}));
      document.body.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: data}));
    }"""
    visit.page.evaluate(drop, content)
    visit.wait("#file-done")
    with visit.page.expect_download() as download:
        visit.page.click("#file-download")
    assert download.value.suggested_filename == "fleet-predicted.csv"
    download.value.save_as(tmp_path / "scored.csv")
    scored = list(csv.DictReader((tmp_path / "scored.csv").read_text().splitlines()))
    expected = httpx.post(f"{site}/models/cars/predict", content=content, headers={"content-type": "text/csv"})
    means = [float(line["mean"]) for line in csv.DictReader(expected.text.splitlines())]
    assert [float(line["mean"]) for line in scored] == pytest.approx(means)
    assert [line["Weight"] for line in scored] == [str(1500 + 10 * i) for i in range(300)]


def test_a_file_comes_back_in_its_own_dialect(visit: Visit, tmp_path: Path) -> None:
    visit.tab("file")
    lines = [HEADER.replace(",", ";"), '3000;100;true;1975-06-01;"USA"', "2000;90;false;1975-06-01;Europe"]
    choose_file(visit, "\n".join(lines))
    visit.wait("#file-done")
    with visit.page.expect_download() as download:
        visit.page.click("#file-download")
    download.value.save_as(tmp_path / "scored.csv")
    scored = list(csv.DictReader((tmp_path / "scored.csv").read_text().splitlines(), delimiter=";"))
    assert [(row["Origin/plant"], float(row["std"]) > 0.0) for row in scored] == [("USA", True), ("Europe", True)]


def test_a_row_unlike_the_training_rows_has_no_promise_of_its_band(visit: Visit) -> None:
    assert "of such rows lie between" in visit.text("#band-line")
    visit.fill("Weight", "9000")
    visit.answered()
    assert "nothing checks it" in visit.text("#band-line")
    visit.tab("file")
    choose_file(visit, f"{HEADER}\n3000,100,true,1975-06-01,USA\n9000,100,true,1975-06-01,USA\n")
    visit.wait("#file-done")
    assert "Rows unlike the training rows: 1 of 2." in visit.text("#file-done")


def test_a_wrong_file_says_where(visit: Visit) -> None:
    visit.tab("file")
    bad = f"{HEADER}\n3000,100,true,1975-06-01,USA\n3000,fast,true,1975-06-01,USA\n"
    choose_file(visit, bad)
    visit.wait("#file-errors li")
    assert [line for line in visit.text("#file-errors").splitlines() if line] == [
        "What is wrong:",
        "row 2, column Horsepower: 'fast' is not a number.",
    ]
    choose_file(visit, "Weight,Automatic\n3000,true\n")
    visit.wait("#file-errors li:has-text('no column')")
    assert "The file has no column Horsepower, Year, Origin/plant." in visit.text("#file-errors")


@pytest.mark.parametrize(("model", "statistic"), [("cars", "mean"), ("bodies", "count")])
def test_a_file_is_added_up_by_a_column(visit: Visit, site: str, model: str, statistic: str) -> None:
    visit.choose("#model", model)
    visit.wait("#density svg" if model == "cars" else "#class-bars li")
    visit.tab("totals")
    rows = [f"{1500 + 10 * i},{80 + i},true,1975-06-01,{('USA', 'Europe')[i % 2]}" for i in range(50)]
    content = "\n".join([HEADER, *rows])
    choose_file(visit, content, "#totals-file")
    visit.choose("#totals-of", statistic)
    visit.choose("#totals-by", "Origin/plant")
    visit.wait("#totals[aria-label*='by Origin/plant'] svg")
    answer = httpx.post(
        f"{site}/models/{model}/aggregate?by=Origin/plant&statistic={statistic}&percentiles=5,95",
        content=content,
        headers={"content-type": "text/csv"},
    ).json()
    visit.answered()
    cells = visit.page.locator("#totals-table tbody tr").first.locator("td").all_inner_texts()
    place = 2 if model == "cars" else 3
    expected = answer["mean"][0] if model == "cars" else answer["mean"][0][0]
    assert (cells[0], cells[place - 1]) == ("USA", "25")
    assert float(cells[place].split(" ± ")[0]) == pytest.approx(expected, rel=0.01, abs=0.1)
    choose_file(visit, "Weight\n3000\n", "#totals-file")
    visit.wait("#totals-errors:not([hidden])")
    assert "The file has no column Horsepower" in visit.text("#totals-errors")


@pytest.mark.parametrize(("model", "what"), [("cars", "mean"), ("risks", "probability")])
def test_why_shows_what_each_cell_adds(visit: Visit, site: str, model: str, what: str) -> None:
    visit.choose("#model", model)
    visit.wait("#density svg" if model == "cars" else "#class-bars li")
    visit.tab("why")
    visit.wait("#why-1 svg")
    visit.answered()
    answer = answer_of(site, model, [typical_row(site, model)], percentiles=[], include=["why"])
    shares = dict(zip(answer["why"]["features"], answer["why"][what][0], strict=True))
    largest = max(shares, key=lambda feature: abs(shares[feature]))
    label = visit.page.get_attribute("#why-0", "aria-label") or ""
    assert f": {largest} " in label
    assert "Without any inputs" in visit.text("#why-text")
    assert visit.texts("#panel-why .legend .key") == ["increases it", "decreases it"]


def test_counts_and_zeros_are_written_in_one_way(visit: Visit) -> None:
    code = """async () => {
      const {count, counted, placed, short} = await import('/web/page/format.js');
      return [counted(1, 'row'), counted(1234, 'row'), count(1234567), placed(-0.3, 20), short(-12345)];
    }"""
    assert visit.page.evaluate(code) == ["1 row", "1,234 rows", "1,234,567", "0", "\u221212,345"]


def test_the_help_is_the_page_of_the_documentation(visit: Visit) -> None:
    link = visit.page.get_attribute("header nav a:has-text('Help')", "href") or ""
    assert (ROOT / link.partition("/blob/main/")[2]).is_file()


def test_without_a_store_the_card_says_how_outcomes_are_kept(visit: Visit) -> None:
    visit.tab("card")
    visit.page.click("#quality button")
    visit.wait("#quality-told p")
    assert "murho serve --store FILE" in visit.text("#quality-told")


def test_the_request_to_copy_gives_the_answer_shown(visit: Visit, site: str) -> None:
    visit.tab("request")
    visit.wait("#requests pre")
    curl, python, json = visit.texts("#requests pre")
    answer = httpx.post(f"{site}/models/cars/predict", content=json).json()
    assert shown_mean(visit) == pytest.approx(answer["mean"][0], abs=0.06)
    assert curl.startswith(f"curl -s {site}/models/cars/predict")
    compile(python, "request.py", "exec")


def test_a_service_that_is_gone_is_said_and_found_again(visit: Visit) -> None:
    visit.page.route("**/predict", lambda route: route.abort())
    visit.fill("Weight", "2500")
    visit.wait("#notice:not([hidden])")
    assert "does not answer" in visit.text("#notice")
    visit.page.unroute("**/predict")
    visit.wait("#notice", state="hidden")
    visit.answered()
    assert not visit.page.locator("body.stale").count()


def test_a_service_that_loads_is_waited_for(browser: Browser, site: str) -> None:
    refused = 0

    def not_yet(route: Any) -> None:
        nonlocal refused
        refused += 1
        if refused > 1:
            route.continue_()
            return
        body = '{"title": "The service isn\'t ready", "status": 503, "detail": "The checkpoints are being loaded."}'
        route.fulfill(status=503, content_type="application/problem+json", body=body, headers={"retry-after": "1"})

    with visiting(browser, site) as visit:
        visit.page.clock.install()
        visit.page.route(re.compile("/models$"), not_yet)
        visit.page.goto(visit.address)
        visit.wait("#notice:not([hidden])")
        assert "being loaded" in visit.text("#notice")
        visit.page.clock.run_for(1000)  # as long as the service asked for
        visit.wait("#density svg")
        visit.wait("#notice", state="hidden")


def test_another_model_has_a_form_of_its_own(visit: Visit) -> None:
    visit.choose("#model", "rents")
    visit.wait('#form .field[data-feature="sqm"]')
    visit.answered()
    assert "rent" in visit.text("#headline")
    assert "m=rents" in visit.page.url
    visit.tab("card")
    visit.answered()
    assert "held-out" in visit.text("#card")
    charts = visit.page.locator("#card .chart")
    assert charts.locator("svg").count() == charts.count()


def test_the_model_card_shows_the_charts_of_the_report(visit: Visit, site: str) -> None:
    charts = httpx.get(f"{site}/models/cars/charts").json()["charts"]
    assert [chart["name"] for chart in charts] == ["predicted", "reliability", "coverage", "importance", "curves"]
    visit.tab("card")
    visit.answered()
    shown = visit.texts("#report figure h4")
    assert shown == [chart["title"] for chart in charts]
    assert visit.page.locator("#report .reported svg").count() == len(shown)


def test_it_is_used_by_keyboard_alone(visit: Visit) -> None:
    keys = visit.page.keyboard
    visit.page.evaluate("() => document.activeElement?.blur()")

    def tab_to(selector: str) -> None:
        for _ in range(60):
            keys.press("Tab")
            if visit.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"{selector} is not reached")

    before = visit.text("#headline")
    tab_to('.field[data-feature="Weight"] input[type=range]')
    for _ in range(12):
        keys.press("PageUp")
    visit.answered()
    assert visit.text("#headline") != before
    tab_to("#threshold")
    tab_to("#tab-sweep")
    for name in (*TABS[1:], "sweep"):
        keys.press("ArrowRight")
        assert visit.page.evaluate("() => document.activeElement.id") == f"tab-{name}"
        visit.wait(f"#panel-{name}")
    visit.answered()


# Of both models, with a warning to be seen.
STATES = [
    ("#a.Weight=9000&a.Year=1975-01-01", "#density svg", "Consumption"),
    ("#m=bodies&a.Weight=9000&b.Weight=1500", "#class-bars li", "Body"),
]


@pytest.mark.parametrize(("state", "shown", "title"), STATES)
@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (PHONE, False), pytest.param(DESKTOP, True, marks=pytest.mark.slow)]
)
def test_axe_finds_nothing_on_any_tab_and_on_a_phone_nothing_is_cut(
    browser: Browser, site: str, size: tuple[int, int], dark: bool, state: str, shown: str, title: str
) -> None:
    with visiting(browser, site, size, dark=dark, has_touch=size is PHONE) as visit:
        visit.go(state, shown)
        assert visit.text("#bar").startswith(title)
        for tab in TABS:
            visit.tab(tab)
            visit.answered()
            assert visit.page.evaluate("() => document.documentElement.scrollWidth") <= size[0], tab
            if size is DESKTOP or tab == TABS[0]:
                assert visit.accessibility("body" if tab == TABS[0] else f"#panel-{tab}") == [], tab
        visit.check(expected=("status of 422",))  # a model that refuses missing cells has no "why"


@pytest.mark.slow
def test_with_api_keys_the_page_asks_for_one(browser: Browser, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "checkpoints" / "cars" / "1")
    with (
        serve(tmp_path / "checkpoints", tmp_path / "log", api_keys=stored("web", KEY)) as service,
        visiting(browser, service.address) as visit,
    ):
        visit.page.goto(visit.address)
        visit.wait("#key")
        assert visit.accessibility() == []
        visit.page.fill("#key-field", KEY.replace(KEY[-1], "x"))
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_function("() => document.getElementById('key-why').textContent.includes('one of this')")
        visit.page.fill("#key-field", KEY)
        visit.page.keyboard.press("Enter")
        visit.wait("#density svg")
        visit.page.reload()
        visit.wait("#density svg")
        visit.check(expected=("status of 401",))

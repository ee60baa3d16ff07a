"""The page at `/` for a classifier, in a real browser, asked by hand, of a real service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.e2e.browser import Visit, answer_of, typical_row
from tests.service.classifiers import CLASSES

MODEL = "bodies"
STATE, SHOWN = f"#m={MODEL}", "#class-bars li"


@pytest.fixture
def visit(window: Visit) -> Iterator[Visit]:
    """Return the page, loaded anew and answered; at the end it has said nothing and asked no other host."""
    window.forget()
    yield window.go(STATE, SHOWN)
    window.check()


def number(text: str) -> float:
    """Return the number in a text such as "< 0.1 %"."""
    return float(text.strip("<> %\u202f"))


def cover(visit: Visit, coverage: int) -> None:
    """Move the slider of the prediction set."""
    visit.page.locator("#coverage").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(coverage)
    )
    visit.page.wait_for_function(f"() => document.getElementById('coverage-text').textContent.startsWith('{coverage}')")
    visit.answered()


def test_it_starts_with_the_likeliest_class_and_a_bar_for_each(visit: Visit, site: str) -> None:
    answer = answer_of(site, MODEL, [typical_row(site, MODEL)])
    assert visit.text("#headline strong") == answer["prediction"][0]
    assert visit.texts("#class-bars .class-name") == list(CLASSES)
    shown = [number(text) for text in visit.texts("#class-bars .figure-text")]
    assert shown == pytest.approx([100 * value for value in answer["probabilities"][0]], abs=0.51)
    first = visit.page.locator("#class-bars .note-text .inline").first.text_content() or ""
    low, _, high = answer["percentiles"]["values"][0][0]
    assert f"draws {100 * low:.0f}" in first or f"draws {100 * low:.1f}" in first
    assert f"to {100 * high:.0f}" in first or f"to {100 * high:.1f}" in first
    assert "33\u202f% of the training rows" in first
    assert "one of 3 classes" in visit.text("#about")


def test_the_set_follows_the_coverage_and_a_link_keeps_it(visit: Visit, site: str) -> None:
    row = typical_row(site, MODEL)
    for coverage in (50, 99):
        cover(visit, coverage)
        names = answer_of(site, MODEL, [row], coverage=coverage / 100)["prediction_set"]["values"][0]
        told = visit.text("#set-text")
        assert [name in told for name in CLASSES] == [name in names for name in CLASSES]
        assert visit.page.locator("#class-bars .value.accent").count() == len(names)
    assert "cover=99" in visit.page.url
    kept = visit.text("#set-text")
    visit.go(visit.page.url.removeprefix(visit.address), SHOWN)
    assert visit.text("#set-text") == kept
    visit.page.evaluate("(state) => { location.hash = state; }", STATE)  # a link without a coverage means 90 %
    visit.page.wait_for_function("() => document.getElementById('coverage-text').textContent.startsWith('90')")
    visit.answered()


def test_the_entropy_is_split_into_aleatoric_and_epistemic(visit: Visit, site: str) -> None:
    answer = answer_of(site, MODEL, [typical_row(site, MODEL)])
    entropy, epistemic = answer["entropy"][0], answer["epistemic_entropy"][0]
    told = visit.text("#split-text")
    assert f"aleatoric (noise) {entropy - epistemic:.2f}" in told
    assert f"epistemic (model) {epistemic:.2f} nats" in told
    assert f"The entropy is {entropy:.2f} nats, of 1.10 at most." in told


def test_the_map_shows_the_likeliest_class_epistemic_entropy_or_one_class(visit: Visit) -> None:
    visit.tab("map")
    visit.wait('#map[aria-label^="likeliest Body over"] svg')
    visit.choose("#map-of", "epistemic_entropy")
    visit.wait('#map[aria-label^="epistemic entropy over"] svg')
    visit.choose("#map-of", f"p:{CLASSES[1]}")
    visit.page.wait_for_function("() => document.querySelector('#map').ariaLabel.startsWith('probability of kei')")
    visit.answered()


def test_two_inputs_are_compared_by_the_same_draws(visit: Visit, site: str) -> None:
    visit.tab("compare")
    visit.fill("Weight", "1500", "#other")
    visit.wait("#change")
    visit.answered()
    row = typical_row(site, MODEL)
    answer = answer_of(site, MODEL, [row, {**row, "Weight": 1500}], include=["draws"])
    draws, means = np.array(answer["draws"]), np.array(answer["probabilities"])
    change = means[1] - means[0]
    most = int(np.abs(change).argmax())
    assert visit.text("#compare-text").startswith(CLASSES[most])
    assert float(visit.text("#change").split()[0]) == pytest.approx(100 * abs(change[most]), abs=0.51)
    above = (0.5 * (draws[0] > draws[1]) + 0.5 * (draws[0] >= draws[1])).mean(axis=0)
    shown = [number(text) for text in visit.texts("#compare .note-text [aria-hidden]")]
    assert shown == pytest.approx(list(100 * above), abs=0.51)
    differ = 1 - (draws[0] * draws[1]).sum(axis=1).mean()
    assert number(visit.text("#differ")) == pytest.approx(100 * differ, abs=0.51)
    # Two equal rows of a batch may differ in their last digits.
    alike = "async () => (await import('/web/page/classes/compare.js')).moreProbable([[[0.3]], [[0.3 + 3e-8]]], 0)"
    assert visit.page.evaluate(alike) == 0.5


def test_the_request_to_copy_gives_the_answer_shown(visit: Visit, site: str) -> None:
    cover(visit, 80)
    visit.tab("request")
    visit.wait("#requests pre")
    _, python, json = visit.texts("#requests pre")
    response = httpx.post(f"{site}/models/bodies/predict", content=json)
    assert response.status_code == 200
    assert response.json()["prediction_set"]["coverage"] == 0.8
    assert visit.text("#headline strong") == response.json()["prediction"][0]
    compile(python, "request.py", "exec")
    assert "coverage=0.8," in python


def test_a_file_is_scored_with_the_chosen_coverage(visit: Visit) -> None:
    cover(visit, 99)
    visit.tab("file")
    content = "Weight,Horsepower,Automatic,Year,Origin/plant\n3000,100,true,1975-06-01,USA\n"
    file: Any = {"name": "cars.csv", "mimeType": "text/csv", "buffer": content.encode()}
    with visit.page.expect_request("**/predict?coverage=0.99"):
        visit.page.set_input_files("#file", file)
    visit.wait("#file-done")
    titles = visit.texts("#file-preview th")
    assert titles[:2] == ["prediction", f"p_{CLASSES[0]}"]


def test_the_model_card_has_scores_sets_and_classes(visit: Visit) -> None:
    visit.tab("card")
    visit.answered()
    card = visit.text("#card")
    for told in ("calibrated on 400 held-out rows (vector scaling)", "Accuracy", "AUC", "Calibration error", "80.0"):
        assert told in card
    assert visit.texts("#card caption") == [
        "Probabilities before and after calibration",
        "Coverage of prediction sets on held-out rows",
        "Classes",
        "Features",
    ]
    long = "it => { it.textContent = '1 824 892 ± 110 431 kWh a year'; return it.scrollWidth <= it.clientWidth; }"
    assert visit.page.locator(".metrics dd").first.evaluate(long), "a number with its unit has room"
    charts = visit.page.locator("#card .chart")
    assert charts.locator("svg").count() == charts.count()


def test_models_of_numbers_and_of_classes_take_turns(visit: Visit) -> None:
    for tab in ("compare", "map", "sweep"):
        visit.tab(tab)
        for model, own in (("cars", "#density svg"), ("bodies", SHOWN)):
            visit.choose("#model", model)
            visit.wait(own)
            visit.answered()
            assert visit.page.locator(f"#{tab} svg, #{tab} li").first.is_visible()
    assert visit.page.locator("#band, #threshold").count() == 0


def test_answers_without_calibration_or_sets_say_so(visit: Visit) -> None:
    def uncalibrated(route: Any) -> None:
        answer = {**route.fetch().json(), "calibrated": False, "prediction_set": None}
        route.fulfill(json=answer)

    visit.page.route("**/predict", uncalibrated)
    visit.fill("Weight", "2500")
    visit.page.wait_for_function("() => document.getElementById('sure-text').textContent.includes('not calibrated')")
    visit.answered()
    assert visit.text("#set-text") == "The checkpoint has no sets."
    visit.page.unroute("**/predict")


def test_many_classes_are_ranked_summed_and_told_apart(visit: Visit) -> None:
    code = """async () => {
      const {split, either} = await import('/web/page/classes/answer.js');
      const {coloursOf} = await import('/web/page/classes/chosen.js');
      const weights = Array.from({length: 40}, (_, i) => i === 7 ? 0.5 : 0.5 / 39);
      const {shown, rest} = split(weights);
      return [shown.length, shown[0], rest.length, new Set(coloursOf([3, 11, 19, 0, 8, 5, 6, 7]).values()).size,
        coloursOf([9, 1]).get(9), either(['A']), either(['A', 'B', 'C']), either(weights.map(String)).slice(-9)];
    }"""
    assert visit.page.evaluate(code) == [11, 7, 29, 8, 1, "A", "A, B or C", "29 others"]

from __future__ import annotations

from dataclasses import replace

from murho.model.data.schema import Feature, FeatureKind, Target
from murho.service.loader import Loader
from murho.service.page import render_start_page
from murho.service.registry import Registry
from murho.service.version_policy import VersionPolicy
from tests.service.support import SCHEMA, FakeModel, FakeSource


def render(*found: FakeModel | tuple[str, str, str]) -> str:
    loader = Loader(FakeSource(*found), Registry("here"), VersionPolicy(every_version=True))
    return render_start_page(loader.refresh(), "http://here:8000")


def test_the_page_says_what_is_loaded() -> None:
    page = render(FakeModel("cars", "3"), FakeModel("cars", "4"))
    for text in ("cars", "version 4", "also served: 3", "Consumption", "(mpg)", "Horsepower", "40 to 230 hp"):
        assert text in page
    for text in ("1970-01-01 to 1982-01-01", "Europe, USA", "null is accepted", "3 mpg", "90.0 %"):
        assert text in page
    assert "http://here:8000/models/cars/predict" in page


def test_the_page_says_what_is_refused_and_why() -> None:
    page = render(FakeModel(), ("boats", "2", "wrong hash <1>"))
    assert "boats 2" in page
    assert "wrong hash &lt;1&gt;" in page


def test_without_a_checkpoint_the_page_says_what_to_do() -> None:
    assert "murho train DATA --target COLUMN" in render()


def test_while_loading_the_page_says_so() -> None:
    assert "being loaded" in render_start_page(Registry("here").snapshot, "http://here")


def test_names_from_the_training_table_are_escaped() -> None:
    odd = Feature("<script>alert(1)</script>", FeatureKind.NUMERIC, "<b>", False, 0.0, 1.0, ())
    schema = replace(SCHEMA, features=(odd,), target=Target("<i>", None))
    page = render(FakeModel(schema=schema))
    assert "<script>" not in page
    assert "<i>" not in page


def test_the_page_needs_no_network_and_no_script() -> None:
    page = render(FakeModel())
    assert "<script" not in page
    assert 'src="http' not in page
    assert 'href="http' not in page
    assert "@import" not in page


def test_a_checkpoint_without_metrics_is_shown_all_the_same() -> None:
    model = FakeModel()
    nothing: list[dict[str, object]] = [{}, {"calibrated": {}, "rmse": None}]
    for metrics in nothing:
        model.spec = replace(model.spec, metrics=metrics)
        assert "held-out" not in render(model)

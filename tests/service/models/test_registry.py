from __future__ import annotations

import pytest

from murho.service.errors import NotReadyError, UnknownModelError
from murho.service.models.loader import Loader
from murho.service.models.registry import Registry, Snapshot
from murho.service.models.version_policy import VersionPolicy
from tests.service.support import FakeModel, FakeSource


def load(*found: FakeModel | tuple[str, str, str]) -> Snapshot:
    return Loader(FakeSource(*found), Registry("/somewhere/checkpoints"), VersionPolicy(every_version=True)).refresh()


def test_before_loading_nothing_is_ready() -> None:
    with pytest.raises(NotReadyError, match="being loaded"):
        Registry("here").snapshot.require_models()


def test_the_highest_version_that_loads_is_the_default_of_a_name() -> None:
    snapshot = load(FakeModel(version="9"), FakeModel(version="10"), ("cars", "11", "a NaN in a tensor"))
    assert list(snapshot.models["cars"].versions) == ["9", "10"]
    assert snapshot.find("cars").version == "10"
    assert snapshot.find("cars", "9").version == "9"


def test_models_are_warm_before_they_are_served() -> None:
    model = FakeModel()
    load(model)
    assert model.warm


def test_what_cannot_be_loaded_is_refused_with_the_reason_and_the_rest_is_served() -> None:
    class Unexpected(FakeModel):
        def warm_up(self) -> None:
            raise ZeroDivisionError("oops")

    snapshot = load(FakeModel("a"), ("b", "1", "wrong hash"), Unexpected("c"))
    assert list(snapshot.models) == ["a"]
    assert [(item.name, item.reason) for item in snapshot.refused] == [
        ("b", "wrong hash"),
        ("c", "loading failed unexpectedly with ZeroDivisionError: oops"),
    ]


def test_without_any_checkpoint_the_advice_is_to_train_one() -> None:
    with pytest.raises(NotReadyError, match="murho train DATA --target COLUMN") as caught:
        load().require_models()
    assert "/somewhere/checkpoints" in str(caught.value)


def test_if_all_are_refused_the_reasons_are_told() -> None:
    with pytest.raises(NotReadyError, match="cars version 1: wrong hash"):
        load(("cars", "1", "wrong hash")).find("cars")


def test_unknown_names_and_versions_are_told_what_there_is() -> None:
    snapshot = load(FakeModel("a", "1"), FakeModel("b", "2"), ("b", "3", "wrong hash"), ("c", "1", "newer format"))
    with pytest.raises(UnknownModelError, match=r"no model 'x'; there are: a, b\."):
        snapshot.find("x")
    with pytest.raises(UnknownModelError, match=r"no version '7'; there are: 2\."):
        snapshot.find("b", "7")
    with pytest.raises(UnknownModelError, match="b version 3 was refused: wrong hash"):
        snapshot.find("b", "3")
    with pytest.raises(UnknownModelError, match="c version 1 was refused: newer format"):
        snapshot.find("c")


def test_the_only_model_is_the_default() -> None:
    assert load(FakeModel("a")).find_default(None).name == "a"


def test_of_several_models_one_must_be_named() -> None:
    snapshot = load(FakeModel("a"), FakeModel("b"))
    with pytest.raises(UnknownModelError, match="/models/a/predict, /models/b/predict"):
        snapshot.find_default(None)
    assert snapshot.find_default("b").name == "b"
    with pytest.raises(UnknownModelError, match="no model 'c'"):
        snapshot.find_default("c")


def test_a_version_that_is_there_but_not_served_is_told_apart() -> None:
    loader = Loader(FakeSource(FakeModel(version="1"), FakeModel(version="2")), Registry("here"))
    snapshot = loader.refresh()
    assert list(snapshot.models["cars"].versions) == ["2"]
    with pytest.raises(UnknownModelError, match=r"is there, but is not served; served is: 2\. .*MURHO_VERSIONS=all"):
        snapshot.find("cars", "1")

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from murho.service.errors import UnknownModelError
from murho.service.models.loader import Loader, Registry, Snapshot
from murho.service.settings import Settings, VersionPolicy
from tests.service.support import FakeModel, FakeSource


def load(*found: FakeModel | tuple[str, str, str]) -> Snapshot:
    return Loader(FakeSource(*found), Registry("/somewhere/checkpoints"), VersionPolicy(every_version=True)).refresh()


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


def test_a_version_that_is_there_but_not_served_is_told_apart() -> None:
    loader = Loader(FakeSource(FakeModel(version="1"), FakeModel(version="2")), Registry("here"))
    snapshot = loader.refresh()
    assert list(snapshot.models["cars"].versions) == ["2"]
    with pytest.raises(UnknownModelError, match=r"is there, but is not served; served is: 2\. .*MURHO_VERSIONS=all"):
        snapshot.find("cars", "1")


@pytest.mark.parametrize("wrong", ["cars", "cars=", "cars=03", "cars=latest", "../x=1", "cars=1,cars=2", "cars=1,"])
def test_pins_that_are_no_pairs_are_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match=r"cars|no NAME=VERSION"):
        Settings(versions="pinned", pinned=wrong)


@pytest.mark.parametrize("wrong", [{"versions": "pinned"}, {"pinned": "cars=1"}, {"versions": "oldest"}])
def test_settings_of_versions_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from murho.service.models.version_policy import VersionPolicy, parse_pins
from murho.service.settings import Settings


def test_pins_are_pairs() -> None:
    assert parse_pins(" cars=3 , rents=12 ") == {"cars": "3", "rents": "12"}
    assert VersionPolicy.of("pinned", "cars=3") == VersionPolicy(pins={"cars": "3"})
    assert VersionPolicy.of("all") == VersionPolicy(every_version=True)


@pytest.mark.parametrize("wrong", ["cars", "cars=", "cars=03", "cars=latest", "../x=1", "cars=1,cars=2", "cars=1,"])
def test_what_is_no_pair_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"cars|no NAME=VERSION"):
        parse_pins(wrong)


@pytest.mark.parametrize("wrong", [{"versions": "pinned"}, {"pinned": "cars=1"}, {"versions": "oldest"}])
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)
    assert Settings(versions="pinned", pinned="cars=1").pinned == "cars=1"

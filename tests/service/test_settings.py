from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from murho.service.settings import Settings


def test_the_environment_sets_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MURHO_PORT", "9000")
    monkeypatch.setenv("MURHO_HOST", "127.0.0.3")
    settings = Settings(host="127.0.0.2")
    assert (settings.port, settings.host) == (9000, "127.0.0.2")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1


@pytest.mark.parametrize(
    "wrong", [{"port": 70000}, {"device": "tpu"}, {"max_samples": 0}, {"request_timeout": 0}, {"threads": 0}]
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": "https://murho.example"},
        {"hosts": "murho.example:8000"},
        {"trusted_proxies": "*"},
        {"trusted_proxies": "proxy.example"},
        {"trusted_proxies": "10.0.0.0/33"},
        {"cors_origins": "app.example"},
        {"cors_origins": "https://app.example/"},
        {"cors_origins": "*"},  # without keys
    ],
)
def test_names_networks_and_origins_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"a host is|a proxy is|an origin is|name the origins"):
        Settings(**wrong)


def test_names_networks_and_origins_come_as_lists() -> None:
    words = {"hosts": " Murho.Example,[::1]", "trusted_proxies": "10.0.0.1/8 ::1", "cors_origins": "*"}
    given: dict[str, Any] = {**words, "api_keys": "web:sha256:" + 64 * "0"}
    settings = Settings(**given)
    assert settings.hosts == ("murho.example", "::1")
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1/128")
    assert settings.cors_origins == ("*",)

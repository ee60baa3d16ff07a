from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from murho.model.errors import OptionError
from murho.service.settings import Settings, read_configuration
from tests.support import ROOT

DIGEST = "ab" * 32
RENEW = "run `python scripts/settings_pages.py`"
PAGES = runpy.run_path(str(ROOT / "scripts" / "settings_pages.py"))


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": "https://murho.example"},
        {"trusted_proxies": "proxy.example"},
        {"cors_origins": "app.example"},
        {"cors_origins": "*"},  # without keys
        {"versions": "pinned"},
        {"pinned": "cars=1"},
        {"versions": "oldest"},
        {"adapt": "rolling"},  # without a store
        *({"versions": "pinned", "pinned": pins} for pins in ("cars", "cars=03", "../x=1", "cars=1,cars=2", "cars=1,")),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        ValidationError,
        match=r"of a host|IPv4 or IPv6 network|an origin|name the origins|version|pinned|NAME=VERSION|set store, too",
    ):
        Settings(**wrong)


def write(folder: Path, text: str) -> Path:
    path = folder / "murho.toml"
    path.write_text(text)
    return path


def test_options_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'port = 1\nhost = "file"\nmax_rows = 1\nopen_paths = ["/metrics"]\n')
    found = read_configuration({"port": 3}, file, {"MURHO_PORT": "2", "murho_host": "environment", "HOME": "/"})
    settings = found.settings
    assert (settings.port, settings.host, settings.max_rows, settings.samples) == (3, "environment", 1, 256)
    assert settings.open_paths == ("/metrics",)
    assert [found.sources[name] for name in ("port", "host", "max_rows", "samples")] == [
        "--port",
        "murho_host",
        f"max_rows in {file}",
        "default",
    ]


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 9\n")
    assert read_configuration({}, None, {"MURHO_CONFIG": str(file)}).settings.port == 9


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"MURHO_PORTT": "1"}, "MURHO_PORTT in the environment is no setting. Did you mean MURHO_PORT?"),
        ({"MURHO_VERSIONS": "pinned"}, "pinned is '': it takes both"),
        ({"MURHO_MAXROWS": "1"}, "Did you mean MURHO_MAX_ROWS?"),
        ({"MURHO_XYZ": "1"}, "MURHO_XYZ in the environment is no setting. `murho serve --show-settings`"),
        ({"MURHO_PORT": "many"}, "MURHO_PORT is 'many': it should be a whole number."),
    ],
)
def test_wrong_variables_are_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_configuration({}, None, environment)
    assert message in str(caught.value)


def test_variables_of_others_are_passed_over() -> None:
    others = {
        "MURHO_URL": "http://x",
        "MURHO_API_KEY": "secret",
        "MURHO_PUBLISH": "8000",
        "MURHO_GPU_PUBLISH": "8001",
        "MURHO_SERVICE_HOST": "10.0.0.1",
        "MURHO_SERVICE_PORT_HTTP": "8000",
        "MURHO_PORT_8000_TCP_ADDR": "10.0.0.1",
        "MURHO_GPU_SERVICE_HOST": "10.0.0.1",
        "MURHO_PORT": "tcp://10.0.0.1:8000",
        "MURHO_GPU_PORT": "tcp://10.0.0.1:8000",
        "OTHER": "1",
    }
    assert set(read_configuration({}, None, others).sources.values()) == {"default"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_row = 1", "'max_row' is no setting. Did you mean max_rows?"),
        ("[limits]\nrows = 1", "'limits' is no setting"),
        ("port = ", "isn't TOML"),
        ("port = 99999", "port in"),
        ('open_paths = ["metrics"]', "a path that begins with /"),
        ('root_path = "murho/"', "a path such as /murho"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_configuration({}, write(tmp_path, text), {})
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't be read"):
        read_configuration({}, tmp_path / "none.toml", {})


def test_settings_are_shown_as_a_file_without_secrets(tmp_path: Path) -> None:
    given = {"api_keys": (f"web:sha256:{DIGEST}",), "request_timeout": 2.5, "checkpoints": Path("a b")}
    lines = read_configuration(given, None, {"MURHO_PORT": "80"}).lines()
    assert "port = 80  # MURHO_PORT" in lines
    assert "request_timeout = 2.5  # --request-timeout" in lines
    assert DIGEST not in "\n".join(lines)
    again: dict[str, Any] = tomllib.loads("\n".join(lines))
    assert set(again) <= set(Settings.model_fields)
    assert again["checkpoints"] == "a b"
    assert read_configuration({}, write(tmp_path, "\n".join(lines)), {}).settings.port == 80


def test_the_committed_example_has_every_setting_with_its_default(tmp_path: Path) -> None:
    assert (ROOT / PAGES["EXAMPLE"]).read_text() == PAGES["example"](), RENEW
    # Every line that has a default can be used as it is.
    text = re.sub(r"^# (\w+ = .*)$", r"\1", PAGES["example"](), flags=re.MULTILINE)
    assert tomllib.loads(text)
    path = tmp_path / "murho.toml"
    path.write_text(text)
    assert read_configuration({}, path, {}).settings == Settings()
    assert set(re.findall(r"^# (\w+) =", PAGES["example"](), flags=re.MULTILINE)) == set(Settings.model_fields)


def test_the_reference_has_every_setting_and_every_option_of_train() -> None:
    text = PAGES["REFERENCE"].read_text()
    assert text == PAGES["reference"](), RENEW
    headings = {re.sub("[^-a-z0-9_]", "", line) for line in text.splitlines() if line.startswith("###")}
    assert {*Settings.model_fields, "--target", "--missing-value"} <= headings

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.testing import CliRunner

from murho.model.errors import OptionError
from murho.service.commands import serve

if TYPE_CHECKING:
    import pytest


def run(*arguments: str) -> BaseException | None:
    app = typer.Typer()
    app.command()(serve)
    return CliRunner().invoke(app, arguments).exception


def test_a_wrong_option_is_named() -> None:
    error = run("--device", "tpu")
    assert isinstance(error, OptionError)
    assert "--device is 'tpu'" in str(error)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MURHO_MAX_SAMPLES", "many")
    error = run()
    assert isinstance(error, OptionError)
    assert "MURHO_MAX_SAMPLES is 'many'" in str(error)

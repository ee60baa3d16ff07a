from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.testing import CliRunner

from murho.cli.serve import key, serve
from murho.model.errors import OptionError
from murho.service.security import digest_of, parse_line

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


def test_it_prints_a_key_and_the_line_that_stores_it() -> None:
    app = typer.Typer()
    app.command()(key)
    result = CliRunner().invoke(app, ["web", "--admin", "--requests", "5"])
    made, line = result.stdout.split()
    stored = parse_line(line)
    assert stored.digest == digest_of(made.encode())
    assert (stored.name, stored.admin, stored.requests, stored.cost) == ("web", True, 5.0, None)
    assert made not in result.stderr
    assert "this once" in result.stderr
    assert isinstance(CliRunner().invoke(app, ["no name"]).exception, OptionError)

from __future__ import annotations

import typer
from typer.testing import CliRunner

from murho.cli.serve import key
from murho.model.errors import OptionError
from murho.service.security import digest_of, parse_line


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

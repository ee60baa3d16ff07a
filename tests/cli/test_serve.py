from typer.testing import CliRunner

from murho.command_line import app
from murho.model.errors import OptionError
from murho.service.security import digest_of, parse_line


def test_it_prints_a_key_and_the_line_that_stores_it() -> None:
    result = CliRunner().invoke(app, ["key", "web", "--admin", "--requests", "5"])
    made, line = result.stdout.split()
    stored = parse_line(line)
    assert stored.digest == digest_of(made.encode())
    assert (stored.name, stored.admin, stored.requests, stored.cost) == ("web", True, 5.0, None)
    assert made not in result.stderr
    assert "Shown once" in result.stderr
    assert isinstance(CliRunner().invoke(app, ["key", "no name"]).exception, OptionError)
    assert "Missing argument 'NAME'" in CliRunner().invoke(app, ["key"]).stderr

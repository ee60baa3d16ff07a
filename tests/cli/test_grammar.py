"""Every command that asks a checkpoint takes its name and the file in the same way."""

import pytest
from typer.testing import CliRunner

from murho.cli.grammar import name_and_data
from murho.command_line import app
from murho.model.errors import OptionError


@pytest.mark.parametrize(
    ("places", "model", "needed", "says"),
    [
        (["cars", "new.csv"], "trucks", True, "named twice"),
        (["cars", "a", "b"], None, False, "a name and a file at most"),
        (["cars", "new.csv"], None, None, "a name at most"),
    ],
)
def test_too_many_arguments_are_refused(places: list[str], model: str | None, needed: bool | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        name_and_data(places, model, needed)


def test_help_names_each_argument() -> None:
    pages = [CliRunner().invoke(app, [command, "--help"]).output for command in ("quality", "explain")]
    assert "quality [OPTIONS] [NAME]\n" in pages[0]
    assert "explain [OPTIONS] [NAME] [DATA]\n" in pages[1]
    assert all("list[" not in page for page in pages)
    assert ["left out" in page for page in pages] == [False, True]  # a store knows no only model


def test_a_file_that_is_needed_is_asked_for() -> None:
    assert "missing DATA: the file to score" in str(CliRunner().invoke(app, ["explain"]).exception)

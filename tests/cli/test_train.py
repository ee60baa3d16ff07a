"""`murho train`: its options, its file, what it prints, what it refuses."""

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from murho.cli.train import next_commands, option_parameters, option_values, read_config
from murho.model.checkpoint.stores import WrittenVersion
from murho.model.errors import OptionError
from murho.model.training.options import TrainOptions
from tests.support import call_murho


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('target = "y"\n\nbatchsize = 32\n', "line 3: there is no option --batchsize; did you mean batch_size?"),
        (
            '# first\n[columns."a b"]\nknid = "numeric"\n',
            "line 3: there is no columns.a b.knid: a column has kind, unit",
        ),
        ('[columns.a]\nunit = "lb"\nepochs = 3\n', "line 3: there is no columns.a.epochs: a column has kind, unit"),
        ('\nnoise = "heteroskedastic"\n', "did you mean heteroscedastic?"),
        ('kl_weights = 3\nmembers = "many"\n', "line 2: --members must be a whole number"),
        ("hidden = [2]\nmembers = = 2\n", "not valid TOML: Invalid value (at line 2, column 11)"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_may_be_meant(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "fit.toml"
    path.write_text(text)
    with pytest.raises(OptionError) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_another_directory_of_checkpoints_is_said_and_quoted() -> None:
    for line in next_commands(WrittenVersion("my models", "my models/cars/1", "cars", "1"))[1:]:
        words = shlex.split(line)
        assert words[words.index("--checkpoints") + 1] == "my models"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("x,y\n1,2\n2,2\n3,2\n", "in every row"),
        ("x,y\n" + "1,2\n2,3\n" * 20 + "4,oops\n", "row 41"),
        ("x,y\n1,2\n2,inf\n3,4\n", "row 2"),
    ],
)
def test_tables_that_can_not_be_used_are_refused_by_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    done = call_murho("train", path, "--target", "y", "--checkpoints", tmp_path / "checkpoints", code=1)
    assert "table.csv" in done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert not list((tmp_path / "checkpoints").glob("*/*"))


def _app(options: type[TrainOptions], received: dict[str, Any]) -> typer.Typer:
    """Return a command with these options and no others, which puts down what it receives."""

    def command(**given: Any) -> None:
        received.update(given)

    command.__signature__ = inspect.Signature(option_parameters(options))  # type: ignore[attr-defined]  # as in `train`
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    return app


def test_what_is_given_is_read_and_the_rest_is_left_to_the_file() -> None:
    received: dict[str, Any] = {}
    words = "--hidden 50,20 --no-skip --ignore a --ignore b --prior-pi 0.25 --kl-weights geometric --seed 3"
    result = CliRunner().invoke(_app(TrainOptions, received), words.split())
    assert result.exit_code == 0, result.output
    assert option_values(received) == {
        "hidden": (50, 20),
        "skip": False,
        "ignore": ["a", "b"],
        "prior_pi": 0.25,
        "kl_weights": "geometric",
        "seed": 3,
    }

"""The options of `murho train` are the fields of `TrainOptions`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from murho.cli.train import option_parameters, option_values, train
from murho.model.errors import OptionError
from murho.model.training.options import TrainOptions


class Further(TrainOptions):
    """One option more."""

    dropout: float = Field(default=0.25, ge=0.0, lt=1.0, description="Share of units left out of a step.")


def _app(options: type[TrainOptions], received: dict[str, Any]) -> typer.Typer:
    """A command with these options and no others, which puts down what it receives."""

    def command(**given: Any) -> None:
        received.update(given)

    command.__signature__ = inspect.Signature(option_parameters(options))  # type: ignore[attr-defined]  # as in `train`
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    return app


def test_every_field_but_the_columns_is_an_option() -> None:
    parameters = inspect.signature(train).parameters
    assert set(TrainOptions.model_fields) - set(parameters) == {"columns"}
    assert all(parameters[name].default is None for name in TrainOptions.model_fields if name != "columns")


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


def test_no_hidden_layers_can_be_asked_for() -> None:
    assert option_values({"hidden": ""}) == {"hidden": ()}


def test_a_list_that_holds_no_whole_numbers_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"^--hidden: expected whole numbers .* not '50,wide'"):
        option_values({"hidden": "50,wide"})


def test_a_further_field_is_a_further_option_with_its_help() -> None:
    received: dict[str, Any] = {}
    app = _app(Further, received)
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert re.search(
        r"--dropout <?float>? Share of units left out of a step\. \[at least 0, below 1; default: 0\.25\]",
        shown,
        flags=re.IGNORECASE,
    )
    assert CliRunner().invoke(app, ["--dropout", "0.5"]).exit_code == 0
    assert received["dropout"] == 0.5
    assert [parameter.name for parameter in option_parameters(Further)][-2:] == ["seed", "dropout"]

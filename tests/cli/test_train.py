"""`murho train`: its options, its file, what it prints, what it refuses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path

import shlex
from typing import TYPE_CHECKING

from murho.cli.train import next_commands, read_config
from murho.model.checkpoint.stores import WrittenVersion
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path


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
        ('kl_weights = 3\nmembers = "many"\n', "line 2: --members: Input should be a valid integer"),
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
        ("x,y\n" + "1,2\n2,3\n" * 20 + "oops,4\n", "row 41"),
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

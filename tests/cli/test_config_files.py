"""The TOML file of a training: what is wrong in it is named with its line and the option meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from murho.cli.train import read_config
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('target = "y"\n\nbatchsize = 32\n', "line 3: there is no option --batchsize; did you mean batch_size?"),
        ('targt = "y"\n', "line 1: there is no option --targt"),
        ("xyzzy = 1\n", "line 1: there is no option --xyzzy"),
        (
            '# first\n[columns."a b"]\nknid = "numeric"\n',
            "line 3: there is no columns.a b.knid: a column has kind, unit",
        ),
        ('[columns.a]\nunit = "lb"\nepochs = 3\n', "line 3: there is no columns.a.epochs: a column has kind, unit"),
        ("columns = {a = {knid = 1}}\n", "line 1: there is no columns.a.knid: a column has kind, unit"),
        ('\nnoise = "heteroskedastic"\n', "line 2: --noise: Input should be"),
        ('\nnoise = "heteroskedastic"\n', "did you mean heteroscedastic?"),
        ('kl_weights = 3\nmembers = "many"\n', "line 2: --members: Input should be a valid integer"),
        ("hidden = [\n", "not valid TOML: Invalid value (at end of document)"),
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

"""The commands that are printed after a training."""

from __future__ import annotations

import shlex

from murho.cli.train import next_commands
from murho.command_line import COMMANDS
from murho.model.checkpoint.stores import WrittenVersion


def test_the_next_commands_name_the_checkpoint_and_where_it_is() -> None:
    title, *lines = next_commands(WrittenVersion("checkpoints", "checkpoints/cars/3", "cars", "3"))
    assert title == "next:"
    assert [line.split()[1] for line in lines] == ["predict", "evaluate", "serve"]
    assert all(line.split()[1] in COMMANDS for line in lines)
    assert "--model cars " in lines[0]
    assert not any("--checkpoints" in line for line in lines)


def test_another_directory_of_checkpoints_is_said_and_quoted() -> None:
    for line in next_commands(WrittenVersion("my models", "my models/cars/1", "cars", "1"))[1:]:
        words = shlex.split(line)
        assert words[words.index("--checkpoints") + 1] == "my models"

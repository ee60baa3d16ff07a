"""What to do with a checkpoint that has just been saved: the next commands, to copy."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murho.model.storage.stores import WrittenVersion

__all__ = ["next_commands"]

DEFAULT_CHECKPOINTS = "checkpoints"


def next_commands(written: WrittenVersion) -> list[str]:
    """Lines for people: the commands that use a checkpoint, each with what it is for.

    Args:
        written: The version that was saved.
    """
    place, name = written.place, written.name
    where = "" if place == DEFAULT_CHECKPOINTS else f" --checkpoints {shlex.quote(place)}"
    commands = {
        f"murho predict NEW.csv --model {name}{where}": "predictions with error bars",
        f"murho evaluate KEPT_BACK.csv --model {name}{where}": "how good they are, on rows not in the training",
        f"murho serve{where}": "over HTTP, with a page to try it",
    }
    width = max(map(len, commands))
    return ["next:", *(f"  {command:<{width}}  {purpose}" for command, purpose in commands.items())]

"""The command `murho publish`: puts a version from disk into another place of checkpoints, such as object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murho.cli.shared import JsonOption, print_json, print_lines


def publish(
    version: Annotated[Path, typer.Argument(help="Directory of the version: checkpoints/NAME/VERSION.")],
    url: Annotated[str, typer.Argument(help="URL of a storage: s3://BUCKET/PREFIX.")],
    name: Annotated[str | None, typer.Option(help="Name of the checkpoint there; by default as on disk.")] = None,
    json: JsonOption = False,
) -> None:
    """Put a version from disk into object storage, as the next version there."""
    from murho.model.checkpoint.checkpoint import name_and_version
    from murho.model.checkpoint.stores import ObjectStore, store_at
    from murho.model.errors import OptionError

    store = store_at(url)
    if not isinstance(store, ObjectStore):
        raise OptionError(f"{url} is no URL of a storage such as s3://BUCKET/PREFIX; copy a directory with cp -r")
    written = store.publish(version, name or name_and_version(version)[0])
    if json:
        print_json({"checkpoint": written.address, "name": written.name, "version": written.version})
    else:
        print_lines([f"published {written.address}"])

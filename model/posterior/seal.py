"""The seal of ``model.json``: a last field with the SHA-256 of all other fields.

It is computed from the parsed content in one canonical form, keys sorted and without spaces. So indentation and the
order of keys may change; names and values may not.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SEAL", "check_seal", "sealed"]

SEAL = "sha256_of_the_rest"
"""Key of the seal."""


def sealed(facts: Mapping[str, Any]) -> bytes:
    """The content of ``model.json``, indented, with its seal as the last field.

    Args:
        facts: All other fields, as JSON data; numpy arrays are written as lists.
    """
    # What a reader parses, not what is written: arrays, and numbers of single precision, have become plain JSON.
    plain = orjson.loads(orjson.dumps(facts, option=orjson.OPT_SERIALIZE_NUMPY))
    return orjson.dumps({**plain, SEAL: _digest(plain)}, option=orjson.OPT_INDENT_2)


def check_seal(facts: Mapping[str, Any]) -> None:
    """Check the seal of parsed content.

    Raises:
        CheckpointError: There is no seal, the content differs from what was sealed, or is nested too deeply for any.
    """
    if SEAL not in facts:
        raise CheckpointError(f"{SEAL} is missing: the file was damaged or edited; restore it or train again")
    try:
        actual = _digest({key: value for key, value in facts.items() if key != SEAL})
    except TypeError as error:
        raise CheckpointError(f"the values are nested too deeply ({error})") from error
    if facts[SEAL] != actual:
        raise CheckpointError(
            f"{SEAL} is {str(facts[SEAL])[:12]}…, but the other fields have {actual[:12]}…: "
            "the file was damaged or edited; restore it or train again"
        )


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()

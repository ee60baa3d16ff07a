"""Which versions of a checkpoint are served: the latest, all of them, or one that is pinned."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from murho.model.checkpoint.directories import NAME_PATTERN, VERSION_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PolicyName", "VersionPolicy", "parse_pins"]

PolicyName: TypeAlias = Literal["latest", "all", "pinned"]


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions are served.

    Attributes:
        every_version: Whether all versions of a name are served, or the highest that can be loaded.
        pins: Name to the only version of it that is served.
    """

    every_version: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, versions: PolicyName, pinned: str = "") -> Self:
        """Returns the policy of two settings.

        Args:
            versions: latest, all or pinned.
            pinned: NAME=VERSION pairs, separated by commas; for `pinned` alone.

        Raises:
            ValueError: The pairs are malformed, or don't go with the policy.
        """
        if (versions == "pinned") != bool(pinned.strip()):
            raise ValueError("it takes both, MURHO_VERSIONS=pinned and MURHO_PINNED=NAME=VERSION, or neither")
        return cls(versions == "all", parse_pins(pinned))


def parse_pins(pinned: str) -> dict[str, str]:
    """Returns name to version from text such as `cars=3,rents=1`.

    Raises:
        ValueError: A part is malformed, or a name comes twice.
    """
    pins: dict[str, str] = {}
    for part in re.split(r"\s*,\s*", pinned.strip()) if pinned.strip() else []:
        name, _, version = part.partition("=")
        if not NAME_PATTERN.fullmatch(name) or not VERSION_PATTERN.fullmatch(version):
            raise ValueError(f"{part!r} is no NAME=VERSION, such as cars=3")
        if name in pins:
            raise ValueError(f"{name} is pinned twice")
        pins[name] = version
    return pins

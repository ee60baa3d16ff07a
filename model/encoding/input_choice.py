"""`InputChoice`: how features become inputs of the networks, as a search chooses it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InputChoice"]


@dataclass(frozen=True, slots=True)
class InputChoice:
    """How the features of a schema become the inputs of networks.

    Attributes:
        encoding: A key of `model.encoding.encodings.ENCODINGS`, or `model.encoding.encodings.MIXED`.
        whitened: Whether whitened directions of correlated numbers are inputs too (`model.encoding.whitening`).
        unread: For each member the names of the features that it does not read; empty: all members read all.
    """

    encoding: str
    whitened: bool = False
    unread: tuple[tuple[str, ...], ...] = ()

    @property
    def unread_by_all(self) -> tuple[str, ...]:
        """The features that no member reads; they are no inputs (`model.encoding.unread`)."""
        first, *others = self.unread or ((),)
        return tuple(name for name in first if all(name in each for each in others))

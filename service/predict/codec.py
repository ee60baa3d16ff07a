"""The seam of formats: a `Codec` reads the bodies of one media type and writes answers in it.

A new format is a new file with a codec, and its entry in `predict.formats`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Schema
    from murho.service.predict.answers import Answered
    from murho.service.predict.rows import Inputs
    from murho.service.settings import Settings

__all__ = ["Asked", "Codec"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        inputs: The rows.
        options: The options, with the defaults filled in.
        timeout: Seconds in which the answer is wanted; None: as the service has it.
    """

    inputs: Inputs
    options: PredictOptions
    timeout: float | None = None


class Codec(ABC):
    """Reads requests and writes answers of one media type.

    Attributes:
        media_type: Of the answers, and the first of those that are read.
        aliases: Other media types that are read, in lower case.
        unpacks: Whether some bytes of a body can stand for many more, so that a small one can take long.
    """

    media_type: ClassVar[str]
    aliases: ClassVar[frozenset[str]] = frozenset()
    unpacks = False

    def reads(self, media_type: str) -> bool:
        """Returns whether a body of this media type, in lower case and without parameters, is for this codec."""
        return media_type == self.media_type or media_type in self.aliases

    @abstractmethod
    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request.

        Args:
            body: The whole body, not compressed.
            query: The query parameters.
            schema: The features of the model.
            settings: The limits.

        Raises:
            BadInputError: A row or an option can't be used; every problem has its pointer.
            TooLargeError: The request is above a limit.
        """

    def require_place(self, options: PredictOptions) -> None:  # noqa: B027 - most formats have one
        """Checks that the format has a place for all that is asked for.

        Raises:
            BadInputError: It has not.
        """

    @abstractmethod
    def encode(self, answered: Answered) -> Iterable[bytes]:
        """Returns the body of the answer, in pieces."""

    def headers(self, answered: Answered) -> Mapping[str, str]:  # noqa: ARG002 - a document has everything
        """Returns headers for what the body has no place for."""
        return {}

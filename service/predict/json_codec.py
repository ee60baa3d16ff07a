"""JSON bodies: options and rows in one document, the answer in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.answer import encode_answer
from murho.service.predict.codec import Asked
from murho.service.predict.envelope import parse_document, predict_options
from murho.service.predict.inputs import parse_inputs
from murho.service.predict.json_pieces import parse_in_pieces
from murho.service.predict.problems import pointer, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Answered
    from murho.service.settings import Settings

__all__ = ["JSONCodec"]

WHOLE_BYTES = 2**16
"""Larger documents are parsed in pieces: see `codecs.json_pieces`."""


class JSONCodec:
    """The codec of `application/json`; see `Codec`."""

    media_type = "application/json"
    unpacks = False

    def reads(self, media_type: str) -> bool:
        """Returns true for JSON under each of its names, and for a body without a media type."""
        return media_type in ("", self.media_type) or (
            media_type.startswith("application/") and media_type.endswith("+json")
        )

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a document; see `Codec.decode`."""
        if query:
            message = "With a JSON body, options are keys of the document, not query parameters."
            raise BadInputError(Problem(pointer(name), f"{shorten(name)!r}: {message}") for name in query)
        if len(body) > WHOLE_BYTES:
            document, inputs = parse_in_pieces(body, schema, settings.max_rows)
            options = predict_options(document, settings.samples, settings.max_samples, schema.target)
            return Asked(inputs, options, document.timeout)
        document = parse_document(body)
        options = predict_options(document, settings.samples, settings.max_samples, schema.target)
        return Asked(parse_inputs(document.inputs, schema, settings.max_rows), options, document.timeout)

    def require_place(self, options: PredictOptions) -> None:
        """Accepts all options."""

    def encode(self, answered: Answered) -> Iterator[bytes]:
        """Returns the document; see `Codec.encode`."""
        return encode_answer(answered.model, answered.target, answered.options, answered.prediction, answered.warnings)

    def headers(self, answered: Answered) -> Mapping[str, str]:  # noqa: ARG002 - the document has everything
        """Returns no headers."""
        return {}

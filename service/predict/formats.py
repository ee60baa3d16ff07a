"""The formats of bodies: which codec reads a request, and which writes its answer.

`Content-Type` picks the reader. `Accept` picks the writer; without it, or with `*/*`, the answer has the format of the
request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from murho.service.errors import MediaTypeError, NotAcceptableError
from murho.service.predict.json_codec import JSONCodec
from murho.service.tables.arrow_tables import ArrowCodec
from murho.service.tables.csv_tables import CSVCodec
from murho.service.tables.npy_arrays import NpyCodec
from murho.service.tables.parquet_tables import ParquetCodec

if TYPE_CHECKING:
    from murho.service.predict.codec import Codec

__all__ = ["CODECS", "MEDIA_TYPES", "PARQUET", "reader_of", "writer_of"]

PARQUET = ParquetCodec()
CODECS: tuple[Codec, ...] = (JSONCodec(), CSVCodec(), ArrowCodec(), PARQUET, NpyCodec())
MEDIA_TYPES = tuple(codec.media_type for codec in CODECS)


def reader_of(content_type: str) -> Codec:
    """Returns the codec that reads a body of this `Content-Type`; JSON for none.

    Raises:
        MediaTypeError: No codec reads it.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    for codec in CODECS:
        if codec.reads(media_type):
            return codec
    raise MediaTypeError(f"{media_type[:80]!r} isn't read here. Send one of {', '.join(MEDIA_TYPES)}.")


def writer_of(accept: str, reader: Codec) -> Codec:
    """Returns the codec of the answer.

    Args:
        accept: The `Accept` header: media ranges with weights, the heaviest wins (RFC 9110, section 12.5.1).
        reader: The codec of the request, which wins ties.

    Raises:
        NotAcceptableError: No codec writes what is accepted.
    """
    if not accept.strip():
        return reader
    best = _heaviest(accept, reader.media_type)
    if best is None:
        raise NotAcceptableError(f"{accept[:80]!r} isn't written here. Accept one of {', '.join(MEDIA_TYPES)}.")
    return reader if best == reader.media_type else CODECS[MEDIA_TYPES.index(best)]


@lru_cache(256)  # most clients send the same header with every request
def _heaviest(accept: str, own: str) -> str | None:
    """Returns the media type of the answer, which is a request's own one unless another weighs more; None for none."""
    ranges = [_range(part) for part in accept.split(",") if part.strip()]
    best, weight = None, 0.0
    for media_type in (own, *MEDIA_TYPES):
        quality = _quality(media_type, ranges)
        if quality > weight:
            best, weight = media_type, quality
    return best


def _range(part: str) -> tuple[str, float]:
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media_range, min(1.0, max(0.0, float(value)))
            except ValueError:
                return media_range, 0.0
    return media_range, 1.0


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Returns the weight of a media type by the most specific range that fits it; 0 if none does."""
    family = media_type.partition("/")[0]
    for wanted in (media_type, f"{family}/*", "*/*"):
        for media_range, quality in ranges:
            if media_range == wanted:
                return quality
    return 0.0

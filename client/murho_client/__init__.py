"""A client of Murho, the prediction service that answers with error bars."""

from murho_client._errors import (
    AuthenticationError,
    Busy,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    MurhoClientError,
    NotReady,
    Problem,
    ServiceError,
    TooLarge,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)

__all__ = [
    "AuthenticationError",
    "Busy",
    "DeadlineExceeded",
    "InternalError",
    "InvalidInput",
    "MurhoClientError",
    "NotReady",
    "Problem",
    "ServiceError",
    "TooLarge",
    "UnexpectedAnswer",
    "UnknownModel",
    "Unreachable",
]

__version__ = "0.1.0"

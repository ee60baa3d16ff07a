"""Murho on Ray: data sets larger than memory with Ray Data, replicas with Ray Serve.

`predict` scores a `ray.data.Dataset`; ``serve run murho.ray:app`` serves a directory of checkpoints. Importing this
package does not import Ray. Without it, the first use of a name says what to install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murho.ray.datasets import predict
    from murho.ray.serve_app import app

__all__ = ["app", "predict"]

PLACES = {"app": "murho.ray.serve_app", "predict": "murho.ray.datasets"}
"""Where each name comes from."""


def __getattr__(name: str) -> Any:
    """Import a name on its first use."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from murho.ray.library import require_ray

    require_ray("serve" if name == "app" else "data")
    return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    """Return the names of the package, those not yet imported too."""
    return sorted({*globals(), *__all__})

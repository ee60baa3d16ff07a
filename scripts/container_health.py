"""Health check of a container, whose image has no curl: exits with 0 if the service answers 200, else with 1.

python container_health.py [PATH]        PATH: /healthz (the default) or /readyz

It asks at MURHO_METRICS_PORT, if that is set, else at MURHO_PORT: by HTTPS if MURHO_SSL_CERTFILE is set.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def answers(path: str, environment: Mapping[str, str], timeout: float = 4.0) -> bool:
    """Whether the service with this environment answers 200 at the path within the timeout, in seconds."""
    of_metrics = environment.get("MURHO_METRICS_PORT")
    port = int(of_metrics or environment.get("MURHO_PORT", "8000"))
    # Not urllib, which would use the proxy that a container's environment may name.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    if not of_metrics and environment.get("MURHO_SSL_CERTFILE"):
        # The certificate is for the name that clients use, and this connection doesn't leave the container.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    requested = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
    sys.exit(0 if answers(requested, os.environ) else 1)

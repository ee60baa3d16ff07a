"""Health check of a container, whose image has no curl: exits with 0 if the service answers 200, else with 1.

python container_health.py [PATH]        PATH: /healthz (the default) or /readyz; the port is MURHO_PORT
"""

from __future__ import annotations

import http.client
import os
import sys

__all__ = ["answers"]


def answers(path: str, port: int, timeout: float = 4.0) -> bool:
    """Whether 127.0.0.1 answers 200 at the path within the timeout, in seconds."""
    # Not urllib, which would use the proxy that a container's environment may name.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    requested = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
    sys.exit(0 if answers(requested, int(os.environ.get("MURHO_PORT", "8000"))) else 1)

"""Exit with 0 when this container's service answers 200, with 1 otherwise: the image has no curl.

python container_health.py [PATH]        PATH: /healthz (the default) or /readyz; the port is MURHO_PORT's
"""

from __future__ import annotations

import http.client
import os
import sys

__all__ = ["answers"]


def answers(path: str, port: int, timeout: float = 4.0) -> bool:
    """Whether 127.0.0.1 answers 200 at the path within the timeout, in seconds."""
    # No urllib: it would ask the proxy that a container's environment may name.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
    sys.exit(0 if answers(asked, int(os.environ.get("MURHO_PORT", "8000"))) else 1)

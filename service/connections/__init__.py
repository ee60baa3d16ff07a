"""Connections to clients: HTTP on top of uvicorn's protocol, its limits, and clients that leave."""

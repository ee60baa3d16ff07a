"""What stands around the routes, in ASGI: the request's log and limits, keys, the direct way of predictions."""

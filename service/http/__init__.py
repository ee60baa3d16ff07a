"""HTTP itself: connections, middleware, limits, what paths share."""

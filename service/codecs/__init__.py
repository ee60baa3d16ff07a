"""Between bytes on the wire and the core's arrays: one module per direction and form, no HTTP in any."""

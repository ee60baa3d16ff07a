"""Codecs between the bytes of a body and the core's arrays: one module per direction and form, without HTTP."""

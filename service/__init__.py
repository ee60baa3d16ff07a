"""The HTTP service of Murho: a protocol-free core with thin routes around it."""

"""The engine in a process of its own: its side, the side of front ends, and what goes between them."""

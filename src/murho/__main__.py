"""``python -m murho``: the `murho` script."""

from murho.command_line import main

main()

"""`python -m wiresum`, the same as the command `wiresum`."""

import sys

from wiresum.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""The CPU benchmark as a script: the same as `tetris-sim bench cpu`, with the same arguments."""

from __future__ import annotations

import sys

from tetris_sim.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["bench", "cpu", *sys.argv[1:]]))

"""Hardware counters of the GPU kernels: the same as `tetris-sim bench gpu --counters`, with the
same arguments.
"""

from __future__ import annotations

import sys

from tetris_sim.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["bench", "gpu", "--counters", *sys.argv[1:]]))

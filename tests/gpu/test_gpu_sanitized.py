"""On a GPU: `compute-sanitizer` finds neither a bad access nor a race in one case of each
kernel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CASES = Path(__file__).parents[1] / "support" / "sanitized_cases.py"


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_one_case_of_each_kernel_is_clean(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed (it comes with the CUDA toolkit)")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "99", sys.executable, str(CASES)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert found.returncode == 0, found.stdout + found.stderr

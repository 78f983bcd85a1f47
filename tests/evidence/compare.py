"""Say what differs: `python -m tests.evidence.compare BEFORE.json AFTER.json`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path


def main() -> int:
    """1 if any key differs, is missing or was added; 2 if nothing was compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="", help="a regular expression that keys match")
    args = parser.parse_args()

    before, after = (
        {
            key: text
            for key, text in json.loads(path.read_text()).items()
            if re.search(args.only, key)
        }
        for path in (args.before, args.after)
    )
    missing = sorted(set(before) - set(after))
    added = sorted(set(after) - set(before))
    other = sorted(key for key in set(before) & set(after) if before[key] != after[key])
    for word, keys in (("missing", missing), ("added", added)):
        for key in keys:
            sys.stdout.write(f"{word}: {key}\n")
    for key in other:
        sys.stdout.write(f"differs: {key}\n  before {before[key]}\n  after  {after[key]}\n")
    same = len(set(before) & set(after)) - len(other)
    sys.stdout.write(
        f"{same} equal, {len(other)} differ, {len(missing)} missing, {len(added)} added\n"
    )
    if not before:
        return 2
    return 1 if missing or added or other else 0


if __name__ == "__main__":
    sys.exit(main())

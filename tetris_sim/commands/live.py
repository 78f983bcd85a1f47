"""`live CONFIG`: a page on which a run is seen and steered while it computes."""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from pathlib import Path

from tetris_sim.commands.arguments import add_override_arguments, load
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.support.wording import printable

HELP = "see and steer a run on a local page while it computes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `live`."""
    parser.add_argument(
        "config", type=Path, nargs="?", metavar="CONFIG", help="the configuration file (YAML)"
    )
    add_override_arguments(parser)
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="run what was done on a page once more, without one: live.jsonl of its results, or "
        "their folder",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of this computer (default: one that is free)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--paused", action="store_true", help="wait before the first step")
    parser.add_argument(
        "--once", action="store_true", help="end with the run, and wait for no restart"
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page and compute, or replay."""
    from tetris_sim.api.live import Session
    from tetris_sim.api.serving import Server
    from tetris_sim.api.steering import replay
    from tetris_sim.support.stopping import Stopping

    if (args.config is None) == (args.replay is None):
        msg = "give a configuration, or the schedule of a run with --replay"
        raise ConfigError(msg)
    stopping = Stopping()
    with stopping.listening():
        if args.replay is not None:
            if args.set or args.device is not None or args.threads is not None:
                msg = "--replay runs what was run: give no changes of the configuration"
                raise ConfigError(msg)
            again = replay(args.replay, overwrite=args.overwrite, stopping=stopping)
            _tell_place(args, str(again))
            return ExitCode.OK if (it := stopping.reason()) is None else it.exit_code

        config = load(args)
        session = Session(
            config,
            overwrite=args.overwrite,
            paused=args.paused,
            once=args.once,
            stopping=stopping,
        )
        with Server(session, args.port) as server:
            address = server.address
            _say(args, "address", address, f"the run is seen at {address} (Ctrl-C ends it)")
            if args.open:
                webbrowser.open(address)
            reason = session.run()
    _tell_place(args, str(session.directory))
    return ExitCode.OK if reason is None else int(reason.exit_code)


def _tell_place(args: argparse.Namespace, place: str) -> None:
    _say(args, "results", place, f"  results in {printable(place)}")


def _say(args: argparse.Namespace, key: str, value: str, text: str) -> None:
    if args.json:
        print(json.dumps({key: value}), flush=True)
    elif not args.quiet:
        print(text, file=sys.stderr if key == "address" else sys.stdout, flush=True)

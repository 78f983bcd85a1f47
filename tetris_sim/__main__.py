"""The command line: `python -m tetris_sim VERB`, the same as `tetris-sim VERB`."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from tetris_sim.commands import VERBS, add_common_arguments, home
from tetris_sim.errors import (
    ConfigError,
    ElsewhereError,
    ExitCode,
    StopRequested,
    TetrisError,
    UnsupportedError,
    as_told,
)
from tetris_sim.scheduler.comm.peers import launched_rank
from tetris_sim.support.stopping import ending_quietly
from tetris_sim.support.wording import first_line, listed, printable_lines, suggestion
from tetris_sim.version import __version__

_VERBS_ARE = f"the verbs are {listed(VERBS, 'and')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code as in `ExitCode`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb = next((word for word in words if word in VERBS), None)
    runs = verb in ("run", "restart", "live")

    quietly = ending_quietly(whole_process=arguments is None) if runs else contextlib.nullcontext()
    try:
        with quietly, _shown_somehow():
            return _run_verb(words, verb)
    except SystemExit as ended:  # the parser's, after --help for example
        if not ended.code and (told := _refused_output(ended)) is not None:
            print_error(told, as_json=False)
            raise SystemExit(int(told.exit_code)) from None
        raise
    except StopRequested as stopped:
        if launched_rank() == 0:
            print(f"tetris-sim: {stopped}", file=sys.stderr)
        return int(stopped.exit_code)


def _run_verb(words: Sequence[str], verb: str | None) -> int:
    parser = _parser(verb)
    first = next((word for word in words if not word.startswith("-")), None)
    try:
        if first is not None and first not in VERBS:
            meant = suggestion(first, VERBS)
            parser.error(f"invalid choice: there is no verb {first}{meant}; {_VERBS_ARE}")
        args = parser.parse_args(words)
    except ConfigError as error:
        if launched_rank() == 0:  # every rank has the same words
            print_error(error, as_json="--json" in words)
        raise SystemExit(int(error.exit_code)) from None

    _set_up_logging(args)
    if args.verb is None:
        parser.print_help()
        return ExitCode.CONFIG

    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code

    # Somebody has had enough.
    except KeyboardInterrupt:
        print("aborted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError as error:
        # The reader of our output, `head` for example, has gone: not an error.
        _refused_output(error)
        return ExitCode.OK

    # What is wrong with the user's request or machine is said in a sentence; all else is our fault.
    except Exception as error:
        told = _refused_output(error) or as_told(error)
        if told is not None:
            if args.debug:
                raise
            print_error(told, as_json=args.json)
            return int(told.exit_code)
        logging.getLogger("tetris_sim").exception(
            (
                "this is a bug in tetris_sim %s: please report it with the output of `tetris-sim "
                "doctor`"
            ),
            __version__,
        )
        return ExitCode.INTERNAL


def _refused_output(error: BaseException) -> TetrisError | None:
    """Why standard output, which is then given up, cannot be written; None if it can be."""
    try:
        sys.stdout.flush()
    except OSError as refusal:
        error = refusal
        # What Python still holds for it would fail once more at exit, with words of its own.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return UnsupportedError(
            f"standard output cannot be written ({first_line(error)}); what a run has written into "
            "its results is whole"
        )
    return None


@contextlib.contextmanager
def _shown_somehow() -> Iterator[None]:
    """Inside the block, print what the terminal can show, and ? for other characters."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever has started the program
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    streams = [it for it in (sys.stdout, sys.stderr) if isinstance(it, io.TextIOWrapper)]
    before = [it.errors for it in streams]
    for stream in streams:
        stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            with contextlib.suppress(OSError, ValueError):  # given up meanwhile
                stream.reconfigure(errors=errors)


def print_error(error: TetrisError, *, as_json: bool) -> None:
    """Say on stderr what is wrong, once for all ranks; with --json also on stdout for a program."""
    if isinstance(error, ElsewhereError):
        return
    if as_json:
        import json

        problems = [problem.as_json() for problem in getattr(error, "problems", ())]
        said = {"error": str(error), "exit_code": int(error.exit_code), "problems": problems}
        with contextlib.suppress(OSError):  # the error may be that of standard output
            print(json.dumps(said))
    place = f" (rank {launched_rank()} on {platform.node()})" if launched_rank() > 0 else ""
    print(printable_lines(f"tetris-sim{place}: {error}"), file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours, so that --json holds for them too."""

    def error(self, message: str) -> NoReturn:
        if launched_rank() == 0:
            self.print_usage(sys.stderr)
        raise ConfigError(message)


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tetris-sim",
        description="Stencil simulations on everything a machine has.",
        parents=[_common()],
    )
    parser.set_defaults(
        verb=None, verbose=0, quiet=False, json=False, no_progress=False, debug=False
    )
    parser.add_argument("-V", "--version", action="version", version=f"tetris-sim {__version__}")

    verbs = parser.add_subparsers(metavar="VERB", dest="verb", parser_class=_Parser)
    for verb, text in VERBS.items():
        child = verbs.add_parser(
            verb, help=text, description=text[0].upper() + text[1:] + ".", parents=[_common()]
        )
        if verb == wanted:
            module, add_arguments, run = home(verb)
            getattr(module, add_arguments)(child)
            child.set_defaults(run=getattr(module, run))
    return parser


def _common() -> _Parser:
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    add_common_arguments(common)
    return common


class _PrintableFormatter(logging.Formatter):
    """Lines for a terminal, which what others have written must not control."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def _set_up_logging(args: argparse.Namespace) -> None:
    quiet = args.quiet or launched_rank() > 0
    level = logging.WARNING if quiet else logging.DEBUG if args.verbose > 1 else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _PrintableFormatter("%(message)s" if level > logging.DEBUG else "%(name)s: %(message)s")
    )
    logger = logging.getLogger("tetris_sim")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


if __name__ == "__main__":
    sys.exit(main())

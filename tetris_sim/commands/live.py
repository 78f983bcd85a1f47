"""`live CONFIG`: a page on which a run is seen and steered while it computes; and `ts.live`.

The page is served to browsers on this computer alone, at an address with a token that nobody can
guess. Whoever lacks it, comes under another name of this computer (DNS rebinding) or from a page
of another origin is turned away. The page loads nothing from elsewhere, and its policy (CSP)
forbids it to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import importlib.resources
import json
import logging
import secrets
import sys
import threading
import webbrowser
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tetris_sim.api.live import Session, Viewer
from tetris_sim.api.running import Source, ask_for
from tetris_sim.api.steering import beginning_of, replay
from tetris_sim.commands import add_override_arguments, load
from tetris_sim.errors import ConfigError, ExitCode, UnsupportedError
from tetris_sim.simulation.loop import Simulation
from tetris_sim.support.stopping import Stopping
from tetris_sim.support.wording import printable

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response


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


# The server, in a thread of its own.

_HOST = "127.0.0.1"
_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
}
_SOCKET = "socket"
_POLICY = (
    "default-src 'none'; img-src data:; script-src 'self'; style-src 'self'; "
    "connect-src 'self' {origin}; base-uri 'none'; form-action 'none'"
)
_LONGEST = 1 << 16  # bytes of a command
_LATEST = 0.5  # seconds after which a page that hears nothing is told that all is well


class Server:
    """A server in a thread of its own, as long as a block.

    Args:
        session: the run that is shown.
        port: of this computer; 0 for one that is free.

    Attributes:
        address: of the page, with its token.
    """

    def __init__(self, session: Session, port: int = 0) -> None:
        self._session, self._port = session, port
        self._token = secrets.token_urlsafe(24)
        self._loop = asyncio.new_event_loop()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._failure: OSError | None = None
        self.address = ""

    def __enter__(self) -> Server:
        try:
            import websockets.asyncio.server  # noqa: F401
        except ImportError as error:
            msg = (
                "the live page needs the package websockets, which is not installed: pip install "
                "'tetris-sim[live]'"
            )
            raise UnsupportedError(msg) from error

        # The port is known, or refused, before the address is printed.
        self._thread = threading.Thread(target=self._serve, name="live page", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            msg = (
                f"port {self._port} of this computer cannot be served "
                f"({self._failure.strerror}): give another --port, or none"
            )
            raise UnsupportedError(msg) from self._failure
        return self

    def __exit__(self, *failure: object) -> None:
        with contextlib.suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        except OSError as error:
            self._failure = error
        finally:
            self._loop.close()
            self._ready.set()

    async def _listen(self) -> None:
        from websockets.asyncio.server import serve

        quiet = logging.getLogger("tetris_sim.live")
        quiet.propagate = False
        quiet.setLevel(logging.CRITICAL)  # what a stranger sends is no news
        # No compression: it takes longer than the loopback.
        async with serve(
            self._talk,
            _HOST,
            self._port,
            process_request=self._answer,
            compression=None,
            max_size=_LONGEST,
            logger=quiet,
            server_header=None,
        ) as server:
            self._port = next(iter(server.sockets)).getsockname()[1]
            self.address = f"http://{_HOST}:{self._port}/{self._token}/"
            self._ready.set()
            await self._over.wait()

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """A file of the page, or a refusal; None lets a web socket open."""
        # A stranger's name may lead here (DNS rebinding); a browser says by which one it came.
        hosts = [f"{name}:{self._port}" for name in (_HOST, "localhost")]
        if request.headers.get_all("Host") not in [[host] for host in hosts]:
            return _respond(connection, HTTPStatus.FORBIDDEN, "wrong host")
        host = request.headers["Host"]
        origins = request.headers.get_all("Origin")
        if origins and origins != [f"http://{host}"]:
            return _respond(connection, HTTPStatus.FORBIDDEN, "wrong origin")
        # Compared in constant time, so that a guess says nothing about how much of it is right.
        token, _, name = request.path.partition("?")[0].lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _respond(connection, HTTPStatus.FORBIDDEN, "wrong address: it has a token")

        # Browsers name the origin of a socket themselves; a page cannot lie about it.
        if name == _SOCKET:
            # Only a page has an origin; a socket without one is no page of ours.
            if not origins:
                return _respond(connection, HTTPStatus.FORBIDDEN, "no origin")
            return None
        if name not in _FILES:
            return _respond(connection, HTTPStatus.NOT_FOUND, "there is no such page")
        file, kind = _FILES[name]
        text = (
            importlib.resources.files("tetris_sim.commands")
            .joinpath("page", file)
            .read_text("utf-8")
        )
        policy = _POLICY.format(origin=f"ws://{host}")
        return _respond(connection, HTTPStatus.OK, text, kind, policy)

    async def _talk(self, connection: ServerConnection) -> None:
        """Send pictures and notes to a page, and hand on what it asks for."""
        from websockets.exceptions import ConnectionClosed

        news = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the server has closed meanwhile
                self._loop.call_soon_threadsafe(news.set)

        # The session owns the simulation: from here it is only asked.
        viewer = Viewer(wake)
        self._session.ask(viewer, {"do": "join"})
        sending = asyncio.create_task(_send(connection, viewer, news))
        try:
            async for message in connection:
                with contextlib.suppress(ValueError):  # no JSON
                    command = json.loads(message)
                    if isinstance(command, dict) and command.get("do") not in ("join", "leave"):
                        self._session.ask(viewer, command)
        except ConnectionClosed:
            pass
        finally:
            sending.cancel()
            self._session.ask(viewer, {"do": "leave"})


async def _send(connection: ServerConnection, viewer: Viewer, news: asyncio.Event) -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(ConnectionClosed):
        while True:
            news.clear()
            # Of pictures only the newest: a slow page skips some, and none wait in a queue.
            for note in viewer.take_notes():
                await connection.send(note)
            if (frame := viewer.take()) is not None:
                await connection.send(frame)
            # A page that hears nothing for long takes the run for dead.
            try:
                await asyncio.wait_for(news.wait(), _LATEST)
            except TimeoutError:
                await connection.send('{"note": "alive"}')


def _respond(
    connection: ServerConnection,
    status: HTTPStatus,
    text: str,
    kind: str = "text/plain; charset=utf-8",
    policy: str = "default-src 'none'",
) -> Response:
    # Everything is said anew: the page must not be kept, framed elsewhere or sniffed.
    response = connection.respond(status, text)
    del response.headers["Content-Type"]
    for name, value in {
        "Content-Type": kind,
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
    }.items():
        response.headers[name] = value
    return response


class LivePage:
    """A run that computes in a thread of its own, and its page; notebooks show it.

    Args:
        session: the run.
        port: of this computer; 0 for one that is free.
        keep: what has to live as long as the run.

    Attributes:
        address: of the page.
        directory: the folder of the results.
    """

    def __init__(self, session: Session, port: int = 0, keep: Any = None) -> None:
        self._session, self._keep = session, keep
        self._server = Server(session, port).__enter__()
        self._failure: Exception | None = None
        self.address, self.directory = self._server.address, session.directory
        self._thread = threading.Thread(target=self._compute, name="live run", daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        try:
            self._session.run()
        except Exception as failure:  # noqa: BLE001  raised again where somebody waits for it
            self._failure = failure

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the run has come to its end; returns whether it has.

        Args:
            seconds: for how long at most [s]; without end if not given.

        Raises:
            TetrisError: the run has failed.
        """
        found = self._session.finished.wait(seconds)
        if self._failure is not None:
            raise self._failure
        return found

    def close(self) -> None:
        """End the run where it is, with a checkpoint, and the page with it.

        Raises:
            TetrisError: the run has failed.
        """
        self._session.ask(None, {"do": "end"})
        self._thread.join()
        self._server.__exit__()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        # Notebooks of another origin may show it in a frame: what it talks to is its own server.
        return (
            f'<iframe src="{self.address}" width="100%" height="760" style="border:0"></iframe>'
            f'<p><a href="{self.address}" target="_blank" rel="noreferrer">in a page of its own</a>'
        )


def live(
    config: Source | Simulation,
    directory: str | Path | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    paused: bool = False,
    port: int = 0,
) -> LivePage:
    """Compute a run in a thread of its own, seen and steered on a page of this computer.

    >>> rod = {
    ...     "grid": {"shape": [50], "size": ["1 m"]},
    ...     "model": {"type": "heat", "material": "copper"},
    ...     "initial": {"type": "constant", "value": 20},
    ...     "boundaries": {"x": {"type": "dirichlet", "value": "0 degC"}},
    ...     "time": {"t_end": "10 min"},
    ... }
    >>> with live(rod) as page:
    ...     page.address.startswith("http://127.0.0.1:"), page.wait(60)
    (True, True)

    Args:
        config: as for `run`; or a simulation of `simulate`, from whose state the page goes on; the
            simulation stays where it is.
        directory: where results go, as for `run`.
        changes: other values by key, like --set.
        overwrite: whether results of an earlier run may be replaced.
        paused: whether it waits before its first step.
        port: of this computer; 0 for one that is free.

    Returns:
        The page, which a notebook shows: its `address`; `wait()` for its end, `close()` ends it.

    Raises:
        UnsupportedError: the package websockets is missing, or the port is taken.
        TetrisError: as for `run`; of the run itself, where it is waited for.
    """
    if not isinstance(config, Simulation):
        beginning, source = None, config
    else:
        found = config.configuration
        if found is None:
            msg = "this simulation is of a bare problem: open it with simulate(config)"
            raise ConfigError(msg)
        if changes:
            msg = "changes go with a configuration, not with the state of a simulation"
            raise ConfigError(msg)
        beginning, source = beginning_of(config), found.resolved()
        source["output"].pop("directory", None)  # that of the simulation is its own

    asked = ask_for(source, directory, None, changes, results_stay=overwrite)
    session = Session(asked.config, beginning, overwrite=overwrite, paused=paused)
    return LivePage(session, port, keep=asked.folder)

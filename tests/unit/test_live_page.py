"""The page of a live run: who may see it, by a client of web sockets; and what it shows, in a headless
browser that is driven through its DevTools.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tetris_sim as ts
from tests.unit.test_live import REACTING, last_state
from tetris_sim.api.steering import read_schedule, replay
from tetris_sim.errors import ConfigError, UnsupportedError

websockets = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    with ts.live(REACTING, tmp_path / "run", paused=True) as found:
        yield found


def connected(address: str, **options: Any) -> Any:
    own = "/".join(address.split("/")[:3])
    where = re.sub("^http", "ws", address) + "socket"
    return websockets.connect(where, origin=options.pop("origin", own), compression=None, **options)


def heard(socket: Any, kind: str, step: int | None = None) -> dict[str, Any]:
    """The next note of a kind; of pictures ("frame") the text before the values."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        message = socket.recv(timeout=60)
        note = (
            json.loads(message)
            if isinstance(message, str)
            else {
                "note": "frame",
                **json.loads(message[4 : 4 + int.from_bytes(message[:4], "little")]),
            }
        )
        if note["note"] == kind and step in (None, note.get("step")):
            return dict(note)
    raise AssertionError(kind)


def fetched(address: str, path: str | None = None, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of a page."""
    _, _, host, rest = address.split("/", 3)
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.putrequest("GET", f"/{rest}" if path is None else path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def test_the_page_loads_nothing_from_elsewhere(page: Any) -> None:
    status, headers, body = fetched(page.address)
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Referrer-Policy"] == "no-referrer"
    names = re.findall(r'(?:src|href)="([^"]+)"', body.decode())
    assert sorted(names) == ["data:,", "page.css", "page.js"]
    for name in names[1:]:
        if name != "data:,":
            status, _, body = fetched(page.address + name)
            assert status == 200
            assert b"http" not in body.replace(b"^http", b"")


def test_strangers_are_turned_away(page: Any) -> None:
    host = page.address.split("/")[2]
    assert fetched(page.address, "/")[0] == 403
    assert fetched(page.address, "/wrong/")[0] == 403
    assert fetched(page.address, "/wrong/socket")[0] == 403
    assert fetched(page.address + "../../etc/passwd")[0] == 404
    assert fetched(page.address, Host="evil.example")[0] == 403
    assert fetched(page.address, Host="evil.example:" + host.split(":")[1])[0] == 403
    assert fetched(page.address, Origin="http://evil.example")[0] == 403
    for origin in ("http://evil.example", "null", f"https://{host}", None):
        with pytest.raises(Exception, match="403"), connected(page.address, origin=origin):
            pass
    with connected(page.address) as socket:
        assert heard(socket, "hello")["title"] == "run"


def test_nobody_outside_of_this_computer_is_listened_to(page: Any) -> None:
    port = int(page.address.split(":")[2].split("/")[0])
    told = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    here = [line.split()[1] for line in told if line.split()[3] == "0A"]
    assert [it for it in here if it.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_two_viewers_see_the_same_run_each_its_own_field_and_one_may_come_back(page: Any) -> None:
    with connected(page.address) as one, connected(page.address) as two:
        heard(one, "hello")
        heard(two, "hello")
        two.send(json.dumps({"do": "view", "field": 1}))
        one.send(json.dumps({"do": "step", "steps": 4}))
        assert heard(one, "frame", 4)["field"] == 0
        assert heard(two, "frame", 4)["field"] == 1
        one.send("no JSON")
        one.send(json.dumps({"do": "leave"}))  # not to be said by a page
        one.send(json.dumps({"do": "step", "steps": 1}))
        heard(one, "frame", 5)
    with connected(page.address) as again:  # a reload
        assert heard(again, "hello")["curves"]["rows"]
        assert heard(again, "frame")["step"] == 5


def test_a_long_command_ends_the_connection_and_not_the_run(page: Any) -> None:
    with connected(page.address) as socket:
        heard(socket, "hello")
        with contextlib.suppress(Exception):
            socket.send("x" * 200_000)
            socket.recv(timeout=10)
    with connected(page.address) as socket:
        assert heard(socket, "frame")["step"] == 0


def test_a_page_goes_on_from_a_simulation_and_replays(tmp_path: Path) -> None:
    saved = {**REACTING, "checkpoint": {"at_end": True}}
    with ts.simulate(saved, tmp_path / "driven") as simulation:
        simulation.set_field(np.full((20, 24), 0.3), "v")
        simulation.advance(50)
        with ts.live(simulation, tmp_path / "seen") as page:
            assert page.wait(100)
        assert simulation.step == 50
        simulation.advance(350)
        wanted = simulation.field()
    assert np.array_equal(last_state(tmp_path / "seen"), wanted)
    replay(tmp_path / "seen", tmp_path / "again")
    assert np.array_equal(last_state(tmp_path / "again"), wanted)


def test_what_cannot_be_shown_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ts.live(REACTING, tmp_path / "one", paused=True) as page:
        port = int(page.address.split(":")[2].split("/")[0])
        with pytest.raises(UnsupportedError, match=f"port {port} of this computer"):
            ts.live(REACTING, tmp_path / "two", port=port)
    with pytest.raises(ConfigError, match="already holds the results"):
        ts.live(REACTING, tmp_path / "one").wait(60)
    monkeypatch.setitem(sys.modules, "websockets.asyncio.server", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'tetris-sim\[live\]'"):
        ts.live(REACTING, tmp_path / "three")


@contextlib.contextmanager
def commanded(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The verb in a process of its own, and its address."""
    (tmp_path / "run.yaml").write_text(json.dumps({**REACTING, "time": {"dt": 1, "t_end": 1e7}}))
    with subprocess.Popen(
        [sys.executable, "-m", "tetris_sim", "live", "run.yaml", "--json", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["address"]
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_the_run_with_a_checkpoint(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with commanded(tmp_path) as (process, address), connected(address) as socket:
        heard(socket, "hello")
        while heard(socket, "frame")["step"] == 0:
            pass
        process.send_signal(number)
        assert process.wait(60) == code
    assert last_state(tmp_path / "results" / "run").shape == (2, 20, 24)
    (end,) = read_schedule(tmp_path / "results" / "run" / "live.jsonl")[1]
    assert end["end"]


@pytest.mark.slow
def test_what_was_done_before_a_kill_can_be_replayed(tmp_path: Path) -> None:
    with commanded(tmp_path, "--paused") as (process, address), connected(address) as socket:
        heard(socket, "hello")
        socket.send(json.dumps({"do": "step", "steps": 30}))
        heard(socket, "frame", 30)
        socket.send(json.dumps({"do": "set", "key": ["model", "constants", "F"], "value": 0.02}))
        heard(socket, "knobs")
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (change,) = read_schedule(tmp_path / "results" / "run" / "live.jsonl")[1]
    assert change == {"step": 30, "set": [[["model", "constants", "F"], 0.02]]}


# In a browser.


class Browser:
    """A page in headless Chromium."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        self._process = subprocess.Popen(
            [
                BROWSER,
                *("--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"),
                *("--enable-unsafe-swiftshader", "--remote-debugging-port=0"),
                *(f"--user-data-dir={folder}", "about:blank"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        told = next(it for it in self._process.stderr if "DevTools listening" in it)
        port = told.split(":")[-1].split("/")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=60) as answer:
            tabs = json.load(answer)
        (tab,) = [it for it in tabs if it["type"] == "page"]
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(
            websockets.connect(tab["webSocketDebuggerUrl"], max_size=None)
        )
        self._count, self.complaints = 0, list[str]()
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": given}))
        while True:
            answer = json.loads(self._socket.recv(timeout=120))
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(answer))
            if answer.get("id") == self._count:
                return dict(answer.get("result", answer))

    def value(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get(
            "value"
        )

    def until(self, script: str) -> Any:
        end = time.monotonic() + 60
        while not (found := self.value(script)) and time.monotonic() < end:
            time.sleep(0.05)
        assert found, (script, self.value("document.body.innerText"), self.complaints)
        return found

    def size(self, width: int, mode: str = "light") -> None:
        modes = [{"name": "prefers-color-scheme", "value": mode}]
        self.call("Emulation.setEmulatedMedia", features=modes)
        view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **view)

    def picture(self) -> np.ndarray[Any, Any]:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with Image.open(io.BytesIO(base64.b64decode(shot))) as image:
            return np.asarray(image.convert("RGB"))

    def close(self) -> None:
        self._stack.close()
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("chromium is not installed (Debian, Ubuntu: apt install chromium)")
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.mark.slow
def test_the_page_shows_and_steers_a_run(page: Any, browser: Browser) -> None:
    browser.size(1400)
    browser.call("Page.navigate", url=page.address)
    browser.until("latest && latest.step === 0")
    assert browser.value("document.getElementById('title').textContent") == "run"
    click = functools.partial("document.getElementById('{}').click()".format)
    browser.value(click("step"))
    browser.until("latest.step === 1")

    # All of the picture has the colour of 1, the highest: nothing of the canvas is left clear.
    script = """(() => { const canvas = document.getElementById('picture'), pixel = new Uint8Array(4);
      gl.readPixels(canvas.width >> 1, canvas.height >> 1, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
      return [...pixel]; })()"""
    assert browser.value(script)[3] == 255

    # The mouse paints v, and the colours of the picture follow.
    browser.value("document.getElementById('field').value = '1'")
    browser.value("document.getElementById('field').dispatchEvent(new Event('input'))")
    browser.until("latest.field === 1")
    dark = browser.value(script)
    browser.value(click("brush"))
    browser.value("document.getElementById('value').value = 0.4")
    browser.value("document.getElementById('radius').value = 4")
    x, y = browser.value(
        "(() => { const box = document.getElementById('picture').getBoundingClientRect();"
        "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
    )
    mouse = {"x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
    browser.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
    browser.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
    browser.until("latest.high > 0.39")
    assert browser.value(script) != dark

    # A slider sets a constant.
    browser.value(
        "(() => { const slider = document.querySelector('.knob input[type=range]');"
        "slider.value = 0.2; slider.dispatchEvent(new Event('input')); })()"
    )
    browser.value(click("pause"))
    browser.until("latest.ended")
    (paint, change) = read_schedule(page.directory / "live.jsonl")[1]
    assert (paint["step"], list(paint["paint"]["at"])) == (1, ["x", "y"])
    assert abs(paint["paint"]["at"]["x"] - 12) < 0.1
    assert change["set"][0][0] == ["model", "constants", "Du"]
    assert browser.complaints == []

    # A reload finds the run as it is, and the page tells when it is gone.
    browser.call("Page.reload")
    browser.until("latest && latest.ended && rows.length > 0")
    page.close()
    browser.until("document.getElementById('state').textContent === 'not connected'")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_page_fits_in_wide_and_narrow_windows_light_and_dark(
    width: int, mode: str, page: Any, browser: Browser
) -> None:
    browser.size(width, mode)
    browser.call("Page.navigate", url=page.address)
    browser.until("latest && rows.length > 0")
    assert browser.value("document.documentElement.scrollWidth") <= width
    shot = browser.picture()
    if kept := os.environ.get("TETRIS_SIM_SCREENSHOTS"):
        Image.fromarray(shot).save(Path(kept) / f"live_{width}_{mode}.png")
    corner = shot[-3, 3].astype(int).sum()
    assert corner > 600 if mode == "light" else corner < 200

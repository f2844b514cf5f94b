"""A headless Chromium, driven through a pipe by its DevTools protocol: nothing but the browser is needed."""

import contextlib
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
MISSING = "no Chromium on this machine, so the report is not tested in a browser: make chromium installs it"
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip


class Page:
    """One tab."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something, and wait for the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + 30
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._receive, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def show(self, width: int, height: int, scheme: str) -> None:
        """Set the size of the window and the colour scheme that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def is_quiet(self, path: Path) -> bool:
        """Whether the page has thrown and said nothing, and asked for nothing but itself."""
        noises = [self.seen(kind) for kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]
        urls = {event["request"]["url"] for event in self.seen("Network.requestWillBeSent")}
        return not any(noises) and {url for url in urls if not url.startswith("data:")} == {path.as_uri()}

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of one kind since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start Chromium, give a page, and stop it."""
    assert CHROMIUM is not None
    (to_read, send), (receive, to_write) = os.pipe(), os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    # Chromium reads commands from descriptor 3 and answers on 4.
    handles = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    spare = [os.dup(to_read), os.dup(to_write)]  # surely not 3 or 4, which are overwritten below
    handles += [(os.POSIX_SPAWN_DUP2, spare[0], 3), (os.POSIX_SPAWN_DUP2, spare[1], 4)]
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
    process = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=handles, setsid=True)
    for handle in (to_read, to_write, null, *spare):
        os.close(handle)
    try:
        yield Page(send, receive)
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(send)
        os.close(receive)

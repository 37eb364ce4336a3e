"""Opens a page in a headless Chromium: screenshots, a PDF, console messages and network requests.

Chromium is driven by its DevTools protocol over two pipes (`--remote-debugging-pipe`, messages of JSON that end with a
zero byte), so that no driver program is needed. `python -m seatrial.reports.browser PAGE.html OUT.png [WIDTH]` writes a
screenshot of a whole page.
"""

import base64
import fcntl
import itertools
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ANSWER_WITHIN = 60.0  # seconds without any message until the browser counts as hung
Json = dict[str, Any]


def program() -> str | None:
    """The browser that is installed; None if there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser does not answer, or refuses a command."""


class Browser:
    """One page of a headless browser, from entering to leaving."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session = ""
        self.console: list[str] = []  # errors and warnings that the page wrote or caused
        self.requests: list[str] = []  # URLs that the page asked for, its own file among them
        self._loaded = False

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(prefix="seatrial-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}",
            "about:blank",
        ]
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4. Above 10 they are in no way.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_browser, from_browser)]
        moves = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends, 3)]
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        self._pid = os.posix_spawn(
            self._executable, [self._executable, *flags], os.environ, file_actions=[*silent, *moves]
        )
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> Json:
        """Send one command and wait for its answer.

        Raises:
            BrowserError: the browser refuses it, or does not answer.
        """
        number = next(self._ids)
        message: Json = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, msgspec.json.encode(message) + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error'].get('message')}")
            result: Json = answer["result"]
            return result

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, media: str = "", dark: bool = False
    ) -> None:
        """Open a file or a URL and wait until it is loaded. `width`, `height`: pixels; `media`: as "print"."""
        scheme = "dark" if dark else "light"
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self._loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self._loaded:
            self._next()

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, file: Path, *, whole: bool = True) -> Path:
        """Write a PNG of the page, or of what is in the window."""
        clip = {}
        if whole:  # with its present size: a script may have removed parts since it was laid out
            width, height = self.ask("[innerWidth, document.documentElement.offsetHeight]")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        response = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        file.write_bytes(base64.b64decode(response["data"]))
        return file

    def pdf(self, file: Path) -> Path:
        """Write the page as it is printed."""
        response = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        file.write_bytes(base64.b64decode(response["data"]))
        return file

    def _next(self) -> Json:
        """The next message, noted if it is an event that matters here."""
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._read], [], [], ANSWER_WITHIN)
            part = os.read(self._read, 1 << 20) if readable else b""
            if not part:
                raise BrowserError(f"{self._executable} does not answer")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Json = msgspec.json.decode(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, results: Json) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(results["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(results["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(value.get("value")) for value in results["args"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{results['entry']['level']}: {results['entry']['text']}")


def main(arguments: Sequence[str]) -> int:
    """Write a picture of a page, 900 pixels wide if no width is given; return the exit status."""
    executable = program()
    if executable is None or len(arguments) not in {2, 3}:
        sys.stderr.write("usage: python -m seatrial.reports.browser PAGE.html OUT.png [WIDTH]; needs chromium\n")
        return 2
    with Browser(executable) as browser:
        browser.open(Path(arguments[0]), width=int(arguments[2]) if len(arguments) > 2 else 900)
        browser.screenshot(Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

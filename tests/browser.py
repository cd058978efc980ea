"""A headless Chromium in which pages are tried, with keys as people press them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowDown": (40, "")}


class Browser:
    """One window, driven by the DevTools protocol over a pipe."""

    def __init__(self, profile: Path) -> None:
        found = shutil.which("chromium")
        assert found, "the report is tested in a browser: apt-get install chromium"
        given, self._to = os.pipe()
        self._from, told = os.pipe()
        moved = f'exec "$@" 3<&{given} 4>&{told}'  # it reads from descriptor 3 and writes to 4
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", found, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(given, told),
            stderr=subprocess.DEVNULL,
        )
        os.close(given)
        os.close(told)
        self._number, self._rest, self._events = 0, b"", set[str]()
        self._session: dict[str, str] = {}
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        answer = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": answer["sessionId"]}
        self.ask("Page.enable")

    def close(self) -> None:
        """End it."""
        self._session = {}
        self.ask("Browser.close")
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def ask(self, method: str, **params: Any) -> Any:
        """Return the answer to a command of the protocol."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, file: Path, width: int, height: int = 800, scheme: str = "light") -> None:
        """Open a page, and wait until it is loaded."""
        self.show(width, height, scheme=scheme)
        self._events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._next()

    def show(self, width: int, height: int = 800, media: str = "", scheme: str = "light") -> None:
        """Show the page in a window of this size, on a medium, in a colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def js(self, expression: str) -> Any:
        """Return the value of an expression, or of its promise."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = _KEYS[key]
        pressed = {"key": key, "code": "Space" if key == " " else key}
        pressed |= {"windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        self.ask("Input.dispatchKeyEvent", type="keyDown", **pressed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def write(self, text: str) -> None:
        """Write text where the focus is."""
        self.ask("Input.insertText", text=text)

    def tab_to(self, condition: str, most: int = 400) -> None:
        """Press Tab until a condition of the focused element, `it`, is true."""
        for _ in range(most):
            self.press("Tab")
            if self.js(f"(it => !!({condition}))(document.activeElement)"):
                return
        raise AssertionError(f"no key leads to {condition}")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        self._events.add(told.get("method", ""))
        return told

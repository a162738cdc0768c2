"""A headless browser, driven by its DevTools protocol over a pipe."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
_AS_3_AND_4 = "import os, sys; [os.dup2(int(sys.argv[i]), i + 2) for i in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"


class Page:
    """One tab; records its logs and requests."""

    def __init__(self, commands, answers):
        self._commands, self._answers, self._id, self._session = commands, answers, 0, None
        self.events = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._id:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url):
        self.send("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script):
        """Return the value of an expression of the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key, text):
        for kind in ("keyDown", "keyUp"):
            code = {"code": key, "windowsVirtualKeyCode": ord(text)}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, text=text, **code)

    def met(self, method):
        return [event["params"] for event in self.events if event["method"] == method]

    def _read(self):
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has gone"
            message += byte
        return json.loads(message)


@contextmanager
def opened_page(folder):
    """Start the browser with a profile in a folder; it is terminated by its process id."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    flags = (*_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}")
    command = [sys.executable, "-c", _AS_3_AND_4, str(their_in), str(their_out), CHROMIUM, *flags]
    with (
        os.fdopen(our_out, "wb") as commands,
        os.fdopen(our_in, "rb") as answers,
        subprocess.Popen(command, pass_fds=(their_in, their_out), stderr=subprocess.DEVNULL) as browser,
    ):
        os.close(their_in)
        os.close(their_out)
        try:
            yield Page(commands, answers)
        finally:
            browser.kill()

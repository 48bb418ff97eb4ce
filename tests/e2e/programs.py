"""Runs the daemon and the client as an operator would. Standard library only."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE_DIR = os.environ["DHS_SOURCE_DIR"]
BIN_DIR = os.environ["DHS_BIN_DIR"]
DAEMON = os.path.join(BIN_DIR, "dhisparsed")
CLIENT = os.path.join(BIN_DIR, "dhisparse")
DEMO_CONFIG = os.path.join(SOURCE_DIR, "configs", "demo.yaml")

# How long to wait for something that must happen; says nothing about how fast it should be.
PATIENCE_S = 120


def wait_for(what, condition):
    """Returns the first true value of condition()."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {PATIENCE_S} s: {what}")


def run_client(*arguments, stdin=None):
    return subprocess.run(
        [CLIENT, *arguments], capture_output=True, input=stdin, timeout=PATIENCE_S, check=False
    )


class Daemon:
    """A running dhisparsed on a free port; use it in a `with` statement."""

    def __init__(self, *overrides, config=DEMO_CONFIG):
        self._log_path = tempfile.NamedTemporaryFile(suffix=".log", delete=False).name
        settings = ["server.listen=127.0.0.1:0", "server.metrics=127.0.0.1:0", *overrides]
        arguments = [part for setting in settings for part in ("--set", setting)]
        with open(self._log_path, "wb") as log:
            self.process = subprocess.Popen(
                [DAEMON, "--config", config, *arguments], stderr=log
            )
        try:
            self.address = wait_for("READY in the daemon's log", self._ready_address)
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise

    def _ready_address(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended:\n{self.log()}")
        found = re.search(r"READY listening on ([^,\s]+),", self.log())
        return found and found.group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.unlink(self._log_path)

    def log(self):
        with open(self._log_path, encoding="utf-8") as log:
            return log.read()

    def http(self, path):
        """Status and text of an answer on the metrics port."""
        address = re.search(r"metrics on http://([^/\s]+)/metrics", self.log()).group(1)
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name, labels=""):
        """The value of the sample whose labels contain `labels`; the sum when several do."""
        pattern = rf"^{name}(?:\{{[^}}]*{re.escape(labels)}[^}}]*\}})? (\S+)$"
        values = re.findall(pattern, self.http("/metrics")[1], re.MULTILINE)
        if not values:
            raise AssertionError(f"no sample {name} with {labels}")
        return sum(map(float, values))

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(timeout=PATIENCE_S)

    def client(self, command, *arguments, stdin=None):
        return run_client(command, "--server", self.address, *arguments, stdin=stdin)

    def json(self, command, *arguments):
        """The object that `command --json` prints; fails when the client does."""
        done = self.client(command, "--json", *arguments)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode())
        return json.loads(done.stdout.decode("utf-8", errors="strict"))

    def start_generate(self, *arguments):
        """A generation whose text the test reads itself, from .stdout."""
        return subprocess.Popen(
            [CLIENT, "generate", "--server", self.address, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def main():
    # A hanging daemon must not outlive the test run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)

"""A castor-server of a test program: started on free ports, found, stopped."""

import collections
import re
import signal
import subprocess
import threading

START_SECONDS = 120
LOG_LINES = 50  # that a failure shows
QUICK = ("--device", "cpu", "--cost-model-budget", "0s")


class StartError(RuntimeError):
    """The server ended before it listened. Its text is the end of the log."""


class CastorServer:
    """Listens when the constructor returns: at `address`, which is 127.0.0.1:`port`, and with
    `metrics` at `metrics_port`.

    A thread reads the log to its end, or else the server would wait for a reader; `log` keeps the
    last lines. A subclass may see each line in on_line(). `limit` runs in the child before it
    becomes the server.
    """

    def __init__(self, program, *arguments, port=0, metrics=False, flags=QUICK, limit=None):
        command = [program, "--listen", f"127.0.0.1:{port}", "--metrics-listen",
                   "127.0.0.1:0" if metrics else "off", *flags, *arguments]
        self.address, self.log = "", collections.deque(maxlen=LOG_LINES)
        self.process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE,
                                        text=True, preexec_fn=limit)
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(START_SECONDS)
        if not self.address:
            self.process.kill()
            self.process.wait()
            raise StartError("".join(self.log) or "castor-server says nothing")

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            self.on_line(line)
            found = re.search(r"listening grpc=(\S+:(\d+))(?:.* metrics=\S+:(\d+))?", line)
            if found and not self.address:
                self.address, self.port = found[1], int(found[2])
                self.metrics_port = int(found[3] or 0)
                self._listening.set()
        self._listening.set()

    def on_line(self, line):
        """A line of the log, in the thread that reads it."""

    def join(self, timeout=60):
        """Waits until the server has ended and its log is read; returns its exit code."""
        code = self.process.wait(timeout)
        self._reader.join()
        self.process.stderr.close()
        return code

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

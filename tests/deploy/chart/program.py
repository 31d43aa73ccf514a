"""What castor-server itself says: its flags, and the metrics of one that runs with the chart's."""

import pathlib
import re
import subprocess
import tempfile
import urllib.request

START_SECONDS = 60
SOURCE = pathlib.Path(__file__).resolve().parents[3] / "server"


class Program:
    """`flags` and `metrics` of the program at `path`, started with the container's arguments.

    Metrics that need a certificate, a model or a collector are not on its page: those that the
    server's source names count, too.
    """

    def __init__(self, path, arguments):
        said = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
        self.flags = set(re.findall(r"--[a-z][a-z-]*", said))
        self.metrics = self._metrics(path, arguments) | self._source_metrics()

    @staticmethod
    def _source_metrics():
        """Names in the source, and the series of those that are histograms."""
        found = set()
        for file in SOURCE.rglob("*.cc"):
            for statement in file.read_text(encoding="utf-8").split(";"):
                names = re.findall(r'"(castor_[a-z_]+)["{]', statement)
                found.update(names)
                if re.search(r"MetricType::Histogram|BuildHistogram", statement):
                    found.update(name + part for name in names
                                 for part in ("_bucket", "_sum", "_count"))
        return found

    @staticmethod
    def _metrics(path, arguments):
        with tempfile.TemporaryDirectory() as folder:
            here = [re.sub(r"=/var/lib/castor/", f"={folder}/",
                           re.sub(r"=0\.0\.0\.0:\d+$", "=127.0.0.1:0", argument))
                    for argument in arguments]
            # Of the times only the drain's delay is not the chart's: nobody waits for it here.
            here = ["--drain-delay=0" if arg.startswith("--drain-delay=") else arg for arg in here]
            log = pathlib.Path(folder) / "log"
            with open(log, "w", encoding="utf-8") as output:
                server = subprocess.Popen(["timeout", str(START_SECONDS), path, *here],
                                          stdout=output, stderr=output)
            try:
                page = Program._page(server, log)
            finally:
                server.terminate()
                server.wait()
        return set(re.findall(r"^(castor_[a-z_]+)", page, re.M)) | set(
            re.findall(r"^# TYPE (castor_[a-z_]+)", page, re.M))

    @staticmethod
    def _page(server, log):
        """The page of /metrics, once the log says where it is."""
        while True:
            ended = server.poll()
            text = log.read_text(encoding="utf-8")
            address = re.search(r'"?metrics"?[=:]\s*"?(127\.0\.0\.1:\d+)', text)
            if address:
                with urllib.request.urlopen(f"http://{address.group(1)}/metrics") as answer:
                    return answer.read().decode()
            if ended is not None:
                raise RuntimeError(f"castor-server ended with {ended}, log: {text}")
            try:
                server.wait(0.05)
            except subprocess.TimeoutExpired:
                pass

"""On a bare machine, where the wheels are installed: a server of one's own, from pip to its end.

wheel_check.py BEGUN MOST: the time at which installing began, and how long it may take to the first
rows. Another server of the same model listens at /tmp/built.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import castor

TEXTS = ["a beaver builds a dam", "interest rates rose", "", "naïve café 🦫", "word " * 300]
START = """
import castor, time
server = castor.start_server({"m": "/mnt/model"})
print(server.process.pid, flush=True)
time.sleep(600)
"""
# What a wheel may take from the system (PEP 600).
SYSTEM = re.compile(r"/(ld-linux-x86-64|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|nss_\w+))\.so")


def check(what, good, told):
    print("PASS " if good else "FAIL ", f"{what}: {told}", flush=True)
    if not good:
        sys.exit(1)


def main():
    with castor.start_server({"m": "/mnt/model"}) as server, castor.Client(server.address) as client:
        rows = client.encode(TEXTS, truncate=True)
        seconds = time.time() - float(sys.argv[1])
        most = float(sys.argv[2])
        check("from pip install to the first rows", seconds < most, f"{seconds:.1f} s")
        with castor.Client("unix:/tmp/built") as built:
            built.wait_ready()
            others = built.encode(TEXTS, truncate=True)
        check("rows of the built server", (rows == others).all(), f"equal, {rows.shape}")

        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        loaded = sorted(set(re.findall(r"(/\S+\.so\S*)", maps)))
        ours = [path for path in loaded if "/site-packages/castor_server/lib/" in path]
        torch = [path for path in loaded if re.search("/site-packages/(torch/lib|nvidia)/", path)]
        others = [path for path in set(loaded) - {*ours, *torch} if not SYSTEM.search(path)]
        check("libraries", ours and not others, f"{len(ours)} of the wheel, {len(torch)} of torch, "
              f"no other but the system's runtimes {others or ''}")
        openmp = [path for path in loaded if "omp" in Path(path).name]
        check("OpenMP", len(openmp) == 1 and "/torch/lib/" in openmp[0], openmp)

    begun = time.time()
    with castor.serve("m=/mnt/model") as client:
        client.encode("a beaver")
    check("castor.serve(), a text, and the end", True, f"{time.time() - begun:.1f} s")

    killed = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True)
    pid = int(killed.stdout.readline())
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    begun = time.time()
    while alive(pid) and time.time() - begun < 20:
        time.sleep(0.01)
    check("a killed parent's server", not alive(pid), f"gone after {time.time() - begun:.2f} s")

    version = subprocess.run(["castor-server", "--version"], capture_output=True, text=True)
    check("castor-server --version", version.returncode == 0, version.stdout.strip())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


main()

"""Writes castor_server's wheel: a zip of a tree, the licences and the bill of materials (PEP 427,
639 and 770). The same files give the same bytes."""

import argparse
import base64
import hashlib
import os
import re
import time
import zipfile
from pathlib import Path

SUMMARY = "Castor's server: embeddings, scores and attention over gRPC and HTTP"
DESCRIPTION = """castor-server with its libraries, for Linux on x86-64. It runs on torch's LibTorch.
The package castor-client calls it, and starts one of its own: castor.serve("models/e5").
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tree", "launcher", "about", "source", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--torch", required=True)
    return parser.parse_args()


def main():
    options = arguments()
    version = re.search(r"project\(castor\s+VERSION\s+([0-9.]+)",
                        (options.source / "CMakeLists.txt").read_text(), re.IGNORECASE)[1]
    info = f"castor_server-{version}.dist-info"
    files = {path.relative_to(options.tree).as_posix(): path.read_bytes()
             for path in options.tree.rglob("*") if path.is_file()}
    launcher = options.launcher.read_text().replace("@TORCH@", options.torch)
    files["castor_server/__init__.py"] = launcher.encode()

    documents = options.about / "usr/share"
    licences = {path.relative_to(documents).as_posix(): path.read_bytes()
                for path in documents.rglob("*") if path.is_file()}
    files |= {f"{info}/licenses/{name}": text for name, text in licences.items()}
    sbom = options.about / "opt/castor/share/sbom.spdx.json"
    files[f"{info}/sboms/castor-server.spdx.json"] = sbom.read_bytes()
    metadata = [
        "Metadata-Version: 2.4", "Name: castor-server", f"Version: {version}",
        f"Summary: {SUMMARY}", "Requires-Python: >=3.10", f"Requires-Dist: torch=={options.torch}",
        *(f"License-File: {name}" for name in sorted(licences)),
        "Description-Content-Type: text/plain", "", DESCRIPTION]
    files[f"{info}/METADATA"] = "\n".join(metadata).encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: castor\nRoot-Is-Purelib: false\n"
        f"Tag: py3-none-{options.tag}\n").encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\ncastor-server = castor_server:main\n"

    record = f"{info}/RECORD"
    rows = [f"{name},sha256={digest(files[name])},{len(files[name])}" for name in sorted(files)]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()

    earliest = 315532800  # a zip's, 1980
    moment = time.gmtime(max(earliest, int(os.environ.get("SOURCE_DATE_EPOCH", earliest))))[:6]
    target = options.out / f"castor_server-{version}-py3-none-{options.tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if "/bin/" in name else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, files[name])
    print(target)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


main()

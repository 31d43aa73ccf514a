"""A castor fetch in a folder of its own, against a hub on loopback, and what a hub can do wrong."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest

from fake_hub import FakeHub

KIB64 = 64 << 10
WEIGHTS = random.Random(7).randbytes(10 * KIB64 + 123)
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
MARKER = ".castor_fetch.json"

READ = {
    "config.json": b'{"model_type": "bert"}', "tokenizer.json": b'{"a": "\xc3\xa9"}',
    "modules.json": json.dumps([{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}]).encode(),
    "1_Pooling/config.json": b'{"pooling_mode": "mean"}',
    "2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"dense", "vocab.txt": b"",
    "model.safetensors": WEIGHTS,
}
LEFT = {
    "README.md": b"read me", "pytorch_model.bin": b"pickle", "model.onnx": b"x", "a.gguf": b"x",
    "onnx/config.json": b"{}", "onnx/model.safetensors": b"x", "openvino/tokenizer.json": b"{}",
    "consolidated.safetensors": b"x", ".gitattributes": b"",
}
MODEL = READ | LEFT


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MARKER}


def cut_at(size):
    """Every answer of the store ends after so many bytes."""
    def fault(handler, path, data):
        if data is None or not path.endswith(".safetensors") or "/resolve/" in path:
            return False
        handler.send_file(data, cut=size)
        return True
    return fault


def status(code, text="", times=10**9, **headers):
    """The first requests for a path with the text get this status."""
    left = [times]

    def fault(handler, path, _):
        if text not in path or left[0] == 0:
            return False
        left[0] -= 1
        handler.send(code, b"a page of an error", **headers)
        return True
    return fault


class FetchCase(unittest.TestCase):
    castor = None  # the program

    def setUp(self):
        # In memory, where fsync costs nothing.
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="castor_fetch_", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.work)
        self.hub = FakeHub(dict(MODEL))
        self.addCleanup(lambda: self.hub.close())
        self.to = self.work / "models" / "m"
        self.cache = self.work / "cache"
        self.repo = self.cache / "models--org--name"
        self.env = {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "PATH": "/bin",
                    "HOME": str(self.work), "NO_PROXY": "*"}

    def start(self, source="hf:org/name", *flags, to=None, **options):
        return subprocess.Popen(
            [self.castor, "fetch", source, "--to", str(to or self.to), "--retries", "2", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, **options)

    def fetch(self, *arguments, code=0, says=".", **options):
        begun = time.monotonic()
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, err)
        self.assertRegex(out + err, says)
        self.assertLess(time.monotonic() - begun, 30)
        return out + err

    def assert_fetched(self, files=None):
        self.assertEqual(tree(self.to), files or READ)
        self.assertEqual(os.listdir(self.to.parent), [self.to.name])
        self.assertEqual(list(self.cache.rglob("*.incomplete")), [])

    def assert_nothing(self):
        self.assertFalse(self.to.exists())

    def part(self):
        """The name and the bytes of what a fetch has left for another."""
        [part] = self.repo.glob("blobs/*.incomplete")
        return part

    def ranges(self):
        """The parts of WEIGHTS that were asked for."""
        return [headers.get("Range") for _, _, headers in self.hub.asked("store", DIGEST)]

    def blob(self, data):
        return self.repo / "blobs" / hashlib.sha256(data).hexdigest()

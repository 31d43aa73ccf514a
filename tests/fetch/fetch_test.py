#!/usr/bin/python3
"""castor fetch against a hub on loopback that misbehaves.

    tests/fetch/fetch_test.py --castor build/client/castor [NAME_OF_TEST ...]
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fake_hub import FakeHub, git_sha1

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASTOR = None
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


class FetchTest(unittest.TestCase):
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
            [CASTOR, "fetch", source, "--to", str(to or self.to), "--retries", "2", *flags],
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

    # ---- what is fetched

    def test_only_what_the_server_reads(self):
        self.fetch(says=r"8 files, 640.\d KiB")
        self.assert_fetched()
        asked = " ".join(path for _, path, _ in self.hub.asked("hub", "/resolve/"))
        for name in LEFT:
            self.assertNotIn("/" + name + " ", asked + " ")
        commit = self.hub.refs["main"]
        marker = json.loads((self.to / MARKER).read_text())
        self.assertEqual((marker["repository"], marker["commit"]), ("org/name", commit))
        self.assertEqual(marker["files"]["model.safetensors"],
                         {"size": len(WEIGHTS), "sha256": DIGEST})
        self.assertEqual(marker["files"]["config.json"]["git_sha1"], git_sha1(READ["config.json"]))
        self.assertEqual((self.repo / "refs/main").read_text(), commit)
        self.assertEqual(tree(self.repo / "snapshots" / commit), READ)
        self.assertTrue((self.to / "model.safetensors").samefile(self.blob(WEIGHTS)))
        (self.to / "config.json").write_text("an edit does not reach the cache")
        self.assertEqual((self.repo / "snapshots" / commit / "config.json").read_bytes(),
                         READ["config.json"])

    def test_names_are_those_of_the_server(self):
        names = set()
        for file in (ROOT / "engine").rglob("*"):
            if file.suffix in (".cc", ".rs") and re.search("encoder|hf", str(file)):
                names |= set(re.findall(
                    r'"/?([a-z][\w.-]*\.(?:json|txt|jinja|metadata|safetensors|model|bin|pt))"',
                    file.read_text()))
        # Found only to explain that they are not read; and the weights, which modules decide.
        names -= {"sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model",
                  "model.safetensors", "adapter_model.safetensors", "adapter_model.bin"}
        names = {name for name in names if not name.startswith("pytorch_model.bin")}
        source = (ROOT / "client/cli/fetch/store.cc").read_text()
        ours = set("".join(re.findall(r'"(.*)"', re.search(r"kNames =(.*?);", source, re.S)[1])).split())
        self.assertGreater(len(names), 15)
        self.assertEqual(names - ours, set())
        self.assertEqual(ours - names, {
            # Names that the server puts together.
            "sparse_linear.safetensors", "colbert_linear.safetensors", "sparse_linear.pt",
            "colbert_linear.pt"})

    def test_adapters(self):
        peft = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"a"}
        files = {"config.json": b"{}", "model.safetensors": WEIGHTS}
        files |= {f"adapters/{task}/{name}": data
                  for task in ("retrieval", "matching") for name, data in peft.items()}
        for given in peft, files:
            self.hub.push(given)
            to = self.work / str(len(given))
            self.fetch("hf:org/name", to=to)
            self.assertEqual({name: data for name, data in tree(to).items() if name != MARKER},
                             given)

    def test_shards_of_the_index(self):
        index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
        files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(),
                 "model-1-of-2.safetensors": b"1", "model-2-of-2.safetensors": b"2"}
        self.hub.push(files | LEFT)
        self.fetch()
        self.assert_fetched(files)
        for shard in "model-3-of-3.safetensors", "../name/model-1-of-2.safetensors":
            index["weight_map"]["b"] = shard
            self.hub.push(files | {"model.safetensors.index.json": json.dumps(index).encode()})
            self.fetch("hf:org/name", to=self.work / "other", code=1,
                       says="index.json: weight_map: there is no .*model-")

    def test_a_transformer_in_a_folder(self):
        files = {"modules.json": b'[{"path": "0_Transformer"}]', "0_Transformer/config.json": b"{}",
                 "0_Transformer/model.safetensors": b"x", "config_sentence_transformers.json": b"{}"}
        self.hub.push(files | {"pytorch_model.bin": b"old", "2_Other/config.json": b"{}"})
        self.fetch()
        self.assert_fetched(files)

    def test_routes_of_a_router(self):
        router = {"types": {"query_0": "...SparseStaticEmbedding", "document_0": "...Transformer"}}
        files = {"modules.json": json.dumps([{"path": ""}]).encode(),
                 "router_config.json": json.dumps(router).encode(),
                 "query_0/model.safetensors": b"q", "query_0/tokenizer.json": b"{}",
                 "document_0/config.json": b"{}", "document_0/model.safetensors": b"d"}
        self.hub.push(files | {"other/model.safetensors": b"not read"})
        self.fetch()
        self.assert_fetched(files)

    def test_pickles_are_refused(self):
        self.hub.push({"config.json": b"{}", "pytorch_model.bin": b"x"})
        self.fetch(code=1, says="pytorch_model.bin: pickles are not read.*refs/pr")
        self.hub.push({"config.json": b"{}"})
        self.fetch(code=1, says="has no model.safetensors")
        self.assert_nothing()

    def test_revisions(self):
        self.hub.push({"config.json": b"{}", "model.safetensors": b"pull"}, "refs/pr/1")
        self.fetch("hf:org/name@refs/pr/1")
        self.assertEqual((self.to / "model.safetensors").read_bytes(), b"pull")
        self.assertTrue((self.repo / "refs/refs/pr/1").exists())
        for bad in ("org/name", "hf:", "hf:a/b/c", "hf:../x", "hf:a--b/c", "hf:a/b@", "hf:a/b@../x",
                    "hf:a/b@/etc", "hf:a/b@x y"):
            self.fetch(bad, code=2, says="is not hf:ORG/NAME")

    # ---- a directory that is there

    def test_the_second_time_is_quick(self):
        self.fetch()
        del self.hub.requests[:]
        self.fetch(says="has it already")
        self.assertEqual(len(self.hub.requests), 1)
        self.hub.close()
        self.fetch("hf:org/name@" + self.hub.refs["main"], says="has it already")
        self.hub = FakeHub(dict(MODEL))

    def test_another_revision(self):
        self.fetch()
        self.hub.push(MODEL | {"config.json": b'{"new": 1}'})
        self.fetch(code=2, says="another revision.*--replace")
        self.assert_fetched()
        del self.hub.requests[:]
        self.fetch("hf:org/name", "--replace")
        self.assert_fetched(READ | {"config.json": b'{"new": 1}'})
        self.assertEqual(self.hub.asked("store"), [])

    def test_a_damaged_directory(self):
        self.fetch()
        (self.to / "tokenizer.json").unlink()
        self.fetch(code=2, says="or was changed: --replace")
        self.fetch("hf:org/name", "--replace")
        self.assert_fetched()

    def test_a_foreign_directory(self):
        self.to.mkdir(parents=True)
        (self.to / "thesis.txt").write_text("the only copy")
        for flags in [], ["--replace"]:
            self.fetch("hf:org/name", *flags, code=2, says="was not made by castor fetch")
        self.assertEqual(tree(self.to), {"thesis.txt": b"the only copy"})
        (self.to / "thesis.txt").unlink()
        self.fetch()  # into an empty directory
        self.assert_fetched()

    def test_another_file_system(self):
        other = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, other)
        if other.stat().st_dev == self.work.stat().st_dev:
            self.skipTest("one file system")
        self.to = other / "m"
        self.fetch()
        self.assert_fetched()

    # ---- connections

    def test_cut_every_64_kib(self):
        self.hub.faults.append(cut_at(KIB64))
        self.fetch()
        self.assert_fetched()
        self.assertEqual(self.ranges(), [None] + [f"bytes={i * KIB64}-" for i in range(1, 11)])

    def test_a_store_without_ranges(self):
        cuts = [3 * KIB64, KIB64, None]

        def fault(handler, path, data):
            if path.startswith("/" + DIGEST):
                handler.send(200, data, cuts.pop(0))
                return True
            return False
        self.hub.faults.append(fault)
        self.fetch()
        self.assert_fetched()

    def test_no_progress_ends(self):
        self.hub.faults.append(cut_at(0))
        self.fetch(code=1, says="model.safetensors: .*check the network")
        self.assert_nothing()

    def test_a_stall_ends(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.hub.faults.append(lambda *_: gate.wait(20))
        self.fetch("hf:org/name", "--stall", "1", code=1, says="org/name@main: ")

    def test_no_hub(self):
        self.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
        self.fetch(code=1, says="org/name@main: .*HF_ENDPOINT")
        self.env["HF_ENDPOINT"] = "hub"
        self.fetch(code=2, says="HF_ENDPOINT: 'hub' is not a URL")

    def test_errors_that_pass(self):
        self.hub.faults += [status(503, "/api/", 2), status(500, "tokenizer.json", 1),
                            status(429, "config.json", 1, Retry_After="1")]
        self.fetch(says="HTTP status 429; wait 1 s")
        self.assert_fetched()

    def test_errors_that_stay(self):
        self.hub.faults.append(status(429, "config.json", Retry_After="4000"))
        begun = time.monotonic()
        self.fetch(code=1, says="HTTP status 429; wait 4000 s; .*or try later")
        self.assertLess(time.monotonic() - begun, 5)
        self.hub.faults[0] = status(502, "model.safetensors")
        self.fetch(code=1, says="HTTP status 502")
        self.assertEqual(len(self.hub.asked("hub", "model.safetensors")), 3)
        self.assert_nothing()

    def test_a_circle_of_redirects(self):
        def fault(handler, path, _):
            if "/model.safetensors" not in path:
                return False
            handler.send(302, Location=path)
            return True
        self.hub.faults.append(fault)
        self.fetch(code=1, says="model.safetensors: .*redirects")
        self.assertLess(len(self.hub.asked("hub", "/model.safetensors")), 20)

    # ---- the token

    def test_the_token_stays_at_the_hub(self):
        for store in self.hub.store_url, f"http://127.0.0.1:{self.hub.store.server_port}":
            with self.subTest(store):
                self.hub.store_url = store
                del self.hub.requests[:]
                shutil.rmtree(self.cache, ignore_errors=True)
                self.fetch("hf:org/name", to=self.work / store[-5:] / store[7:10])
                self.assertEqual({h.get("Authorization") for _, _, h in self.hub.asked()}, {None})
                del self.hub.requests[:]
                shutil.rmtree(self.cache)
                self.env["HF_TOKEN"] = "hf_secret"
                self.fetch("hf:org/name", to=self.work / store[-5:] / ("t" + store[7:10]))
                del self.env["HF_TOKEN"]
                self.assertEqual({h.get("Authorization") for _, _, h in self.hub.asked("hub")},
                                 {"Bearer hf_secret"})
                self.assertGreater(len(self.hub.asked("store")), 1)
                self.assertEqual({h.get("Authorization") for _, _, h in self.hub.asked("store")},
                                 {None})

    def test_the_token_of_a_file(self):
        del self.env["HF_HUB_CACHE"]
        self.env["HF_HOME"] = str(self.work / "home")
        (self.work / "home").mkdir()
        (self.work / "home/token").write_text("hf_of_a_file\n")
        self.fetch()
        self.assertEqual({h.get("Authorization") for _, _, h in self.hub.asked("hub")},
                         {"Bearer hf_of_a_file"})
        self.assertTrue((self.work / "home/hub/models--org--name/refs/main").exists())
        self.env["HF_ENDPOINT"] = "http://hub.invalid"
        self.fetch("hf:org/name@x", code=2, says="not HTTPS.*unset HF_TOKEN")

    def test_refusals(self):
        for token, code, headers, says in (
                (None, 401, {}, "org/name@main: 127.0.0.1 answers .* 401; check the name, and HF_TOKEN"),
                ("hf_x", 401, {}, "401; check the name, and HF_TOKEN"),
                (None, 401, {"X_Error_Code": "GatedRepo"},
                 f"accept the license at {self.hub.url}/org/name, and set HF_TOKEN"),
                ("hf_x", 403, {"X_Error_Message": "ask the authors"},
                 r"\(ask the authors\); accept the license at "),
                (None, 404, {"X_Error_Code": "RevisionNotFound"},
                 "404; check the name and the revision")):
            with self.subTest(code=code, token=token):
                self.env.pop("HF_TOKEN", None)
                if token:
                    self.env["HF_TOKEN"] = token
                self.hub.faults = [status(code, "/api/", **headers)]
                says_all = self.fetch(code=1, says=says)
                self.assertNotIn("hf_x", says_all)
        self.hub.faults = [status(403, "model.safetensors")]
        self.fetch(code=1, says="model.safetensors: .*accept the license")
        self.assert_nothing()

    # ---- contents

    def wrong(self, times):
        left = [times]

        def fault(handler, path, data):
            if not path.startswith("/" + DIGEST) or left[0] == 0:
                return False
            left[0] -= 1
            handler.send(200, data[:-1] + bytes([data[-1] ^ 1]))
            return True
        return fault

    def test_wrong_contents(self):
        self.hub.faults = [self.wrong(2)]
        self.fetch(code=1, says="model.safetensors: the hub has sent other contents.*twice")
        self.assert_nothing()
        self.assertEqual(list(self.repo.glob("blobs/*.incomplete")), [])
        self.hub.faults = [self.wrong(1)]
        self.fetch()
        self.assert_fetched()

    def test_wrong_small_file(self):
        self.hub.faults = [lambda handler, path, data:
                           path.endswith("tokenizer.json") and not handler.send(200, b"login page")]
        self.fetch(code=1, says="tokenizer.json: ")
        self.assert_nothing()

    def test_sizes_that_lie(self):
        for change in (-1, 1, 1000):
            def describe(listing, change=change):
                for each in listing["siblings"]:
                    if each["rfilename"] == "model.safetensors":
                        each["lfs"]["size"] += change
                return listing
            self.hub.describe = describe
            self.fetch(code=1, says="model.safetensors: ")
            self.assert_nothing()

    def test_answers_that_are_no_hubs(self):
        def name(path):
            return lambda listing: listing | {"siblings": [{"rfilename": path, "size": 1,
                                                            "blobId": "a" * 40}]}
        for describe, says in (
                (name("../evil"), "leads out of the folder"), (name("/etc/x"), "leads out"),
                (name("a/../../b"), "leads out"), (name("a\\b"), "leads out"), (name(""), "leads"),
                (lambda listing: listing | {"sha": "../../x"}, "no hub's: sha"),
                (lambda listing: [], "answer is no hub's"),
                (lambda listing: {"sha": listing["sha"]}, "siblings"),
                (lambda listing: listing | {"siblings": [{"rfilename": "a"}]}, "size"),
                (lambda listing: listing | {"siblings": [{"rfilename": "a", "size": -1,
                                                          "blobId": "a" * 40}]}, "a: size"),
                (lambda listing: listing | {"siblings": [{"rfilename": "a", "size": 1,
                                                          "blobId": "../" + "a" * 37}]}, "blobId")):
            self.hub.describe = describe
            self.fetch(code=1, says=says)
            self.assertFalse(self.cache.exists())
        self.hub.describe = lambda listing: listing
        for path in "../../other", "/etc":
            self.hub.push(MODEL | {"modules.json": json.dumps([{"path": path}]).encode()})
            self.fetch(code=1, says="has no model.safetensors")
        self.hub.push(MODEL | {"modules.json": b'{"path'})
        self.fetch(code=1, says="modules.json: is not JSON")
        self.assert_nothing()

    # ---- disks, processes

    def test_a_full_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 * KIB64, 4 * KIB64))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.fetch(code=2, says="model.safetensors: cannot write.*File too large.*is kept",
                   preexec_fn=limit, restore_signals=False)
        self.assert_nothing()
        self.assertEqual(self.part().stat().st_size, 4 * KIB64)
        self.fetch()
        self.assert_fetched()
        self.assertEqual(self.ranges()[-1], f"bytes={4 * KIB64}-")

    def test_too_little_room(self):
        def describe(listing):
            for each in listing["siblings"]:
                if each["rfilename"] == "model.safetensors":
                    each["lfs"]["size"] = 1 << 50
            return listing
        self.hub.describe = describe
        self.fetch(code=2, says=r"free, and 1024\.?0? TiB more are needed")
        self.assertEqual(self.hub.asked("hub", "model.safetensors"), [])

    def test_folders_that_cannot_be_made(self):
        (self.work / "file").write_text("")
        self.fetch("hf:org/name", to=self.work / "file/m", code=2, says="--to")
        self.env["HF_HUB_CACHE"] = str(self.work / "file")
        self.fetch(code=2, says="HF_HUB_CACHE")

    def test_two_at_once(self):
        gate = threading.Event()

        def fault(handler, path, data):
            if path.startswith("/" + DIGEST):
                gate.wait(20)
            return False
        self.hub.faults.append(fault)
        processes = [self.start() for _ in range(3)]
        processes.append(self.start(to=self.to.parent / "other"))
        time.sleep(0.5)
        gate.set()
        for process in processes:
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0, err)
        self.assertEqual(tree(self.to.parent / "other"), READ)
        shutil.rmtree(self.to.parent / "other")
        self.assert_fetched()
        self.assertEqual(self.ranges(), [None])

    def test_a_revision_that_moves(self):
        def fault(_, path, __):
            if "/resolve/" in path:
                self.hub.push({name: b"moved" for name in MODEL})
            return False
        self.hub.faults.append(fault)
        commit = self.hub.refs["main"]
        self.fetch(says=commit)
        self.assert_fetched()
        self.assertNotEqual(self.hub.refs["main"], commit)

    def test_killed_and_begun_again(self):
        reached = threading.Event()

        def fault(handler, path, data):
            if not path.startswith("/" + DIGEST):
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:5 * KIB64])
            reached.set()
            time.sleep(5)
            handler.close_connection = True
            return True
        self.hub.faults.append(fault)
        process = self.start()
        self.assertTrue(reached.wait(20))
        deadline = time.monotonic() + 10
        while self.part().stat().st_size < 5 * KIB64 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        self.assert_nothing()
        # As if it had been killed while it made the directory, too.
        (self.to.parent / ".m.castor-new/1_Pooling").mkdir(parents=True)
        del self.hub.faults[:]
        self.fetch()
        self.assert_fetched()
        self.assertEqual(self.ranges()[-1], f"bytes={5 * KIB64}-")

    # ---- the cache

    def test_offline(self):
        self.env["HF_HUB_OFFLINE"] = "true"
        self.fetch(code=2, says="org/name@main is not in .*unset HF_HUB_OFFLINE")
        self.env["HF_HUB_OFFLINE"] = "0"
        self.fetch()
        self.env["HF_HUB_OFFLINE"] = "1"
        del self.hub.requests[:]
        for revision in "main", self.hub.refs["main"]:
            shutil.rmtree(self.to)
            says = self.fetch("hf:org/name@" + revision)
            self.assertNotIn("warning", says)
            self.assert_fetched()
        self.fetch("hf:org/name@other", code=2, says="is not in")
        shutil.rmtree(self.to)
        blob = self.blob(WEIGHTS)
        blob.unlink()
        blob.write_bytes(WEIGHTS[::-1])
        self.fetch(code=2, says="model.safetensors: is not in the cache, or damaged")
        self.assertEqual(self.hub.requests, [])
        self.assert_nothing()

    def test_a_cache_that_may_not_be_written(self):
        self.fetch()
        files = [path for path in self.cache.rglob("*") if path.is_file()]
        times = [path.lstat().st_mtime_ns for path in files]
        self.fetch("hf:org/name", to=self.work / "other")
        self.assertEqual([path.lstat().st_mtime_ns for path in files], times)
        if os.geteuid() != 0:
            return
        os.chmod(self.work, 0o755)
        (self.work / "theirs").mkdir()
        os.chown(self.work / "theirs", 65534, 65534)
        self.fetch("hf:org/name", to=self.work / "theirs/m", user=65534, group=65534,
                   extra_groups=[])
        self.assertEqual(tree(self.work / "theirs/m"), READ)

    def python_cache(self):
        """The model as huggingface_hub lays it out."""
        commit = self.hub.refs["main"]
        for path, data in MODEL.items():
            large = path.endswith(".safetensors")
            blob = self.repo / "blobs" / (hashlib.sha256(data).hexdigest() if large
                                          else git_sha1(data))
            link = self.repo / "snapshots" / commit / path
            for folder in blob.parent, link.parent:
                folder.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(data)
            link.symlink_to(os.path.relpath(blob, link.parent))
        (self.repo / "refs").mkdir()
        (self.repo / "refs/main").write_text(commit)

    def test_what_python_has_fetched(self):
        self.python_cache()
        self.env["HF_HUB_OFFLINE"] = "YES"
        self.fetch(says="warning: .*another program's")
        self.assert_fetched()
        shutil.rmtree(self.to)
        del self.env["HF_HUB_OFFLINE"]
        self.blob(WEIGHTS).write_bytes(WEIGHTS[:100])  # a copy that was not written to its end
        self.fetch(says="model.safetensors. is damaged")
        self.assert_fetched()
        self.assertEqual(len(self.hub.asked("hub", "/resolve/")), 1)


def main():
    global CASTOR
    parser = argparse.ArgumentParser()
    parser.add_argument("--castor", required=True, type=os.path.abspath)
    flags, names = parser.parse_known_args()
    if names:
        CASTOR = flags.castor
        return unittest.main(argv=[sys.argv[0], *names])
    # Tests wait for most of their time: a process for every fourth.
    names = ["FetchTest." + name for name in unittest.TestLoader().getTestCaseNames(FetchTest)]
    running = [subprocess.Popen([*sys.argv, *names[i::4]]) for i in range(4)]
    sys.exit(any([process.wait() for process in running]))


if __name__ == "__main__":
    main()

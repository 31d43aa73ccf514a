"""castor fetch against hubs, stores, disks and neighbours that misbehave."""

import json
import resource
import shutil
import signal
import threading
import time

from fetch_case import DIGEST, FetchCase, KIB64, MODEL, READ, cut_at, status, tree


class ConnectionTest(FetchCase):
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


class TokenTest(FetchCase):
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


class ContentsTest(FetchCase):
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


class ProcessTest(FetchCase):
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

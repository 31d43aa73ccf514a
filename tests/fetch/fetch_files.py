"""What castor fetch brings from a hub, the directory it makes, and the cache it shares."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile

from fake_hub import FakeHub, git_sha1
from fetch_case import DIGEST, FetchCase, LEFT, MARKER, MODEL, READ, WEIGHTS, tree

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FilesTest(FetchCase):
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


class DirectoryTest(FetchCase):
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


class CacheTest(FetchCase):
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

"""A Hugging Face hub on loopback, with faults: repositories, an API, and a store for large files."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def commit_of(files):
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


class FakeHub:
    """Serves `commits` (commit → {path: bytes}) by `refs` (revision → commit) under the name `repo`.

    Files that end in .safetensors are in LFS: the hub redirects to `store`, a second server, whose
    host has another name. `requests` are (server, path, headers). Tests change the attributes:
      faults     functions (handler, path, data) → whether they answered; the first one to do so wins
      describe   changes the list that the API is about to send
    """

    def __init__(self, files, repo="org/name"):
        self.repo, self.requests, self.faults = repo, [], []
        self.commits, self.refs = {}, {}
        self.describe = lambda listing: listing
        self.push(files)
        self.hub, self.store = self._serve("hub"), self._serve("store")
        self.url = f"http://127.0.0.1:{self.hub.server_port}"
        self.store_url = f"http://localhost:{self.store.server_port}"

    def push(self, files, revision="main"):
        commit = commit_of(files)
        self.commits[commit], self.refs[revision] = files, commit
        return commit

    def close(self):
        for server in self.hub, self.store:
            server.shutdown()
            server.server_close()

    def asked(self, server=None, text=""):
        return [each for each in self.requests
                if server in (None, each[0]) and text in each[1]]

    def listing(self, commit):
        siblings = []
        for path, data in self.commits[commit].items():
            each = {"rfilename": path, "size": len(data), "blobId": git_sha1(data)}
            if path.endswith(".safetensors"):
                each["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                               "pointerSize": 133}
                each["blobId"] = "0" * 40
            siblings.append(each)
        return {"id": self.repo, "sha": commit, "siblings": siblings}

    def _serve(self, name):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # headers and body together; else the client's delayed ACK costs 40 ms

            def log_message(self, *_):
                pass

            def do_GET(self):
                path = urllib.parse.urlsplit(self.path).path
                owner.requests.append((name, path, dict(self.headers)))
                try:
                    owner.answer(self, name, path)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def send(self, status, body=b"", cut=None, **headers):
                """Sends the first `cut` bytes of the body, and ends the connection there."""
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if cut is None else body[:cut])
                self.close_connection |= cut is not None and cut < len(body)

            def send_file(self, data, cut=None):
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                first = int(asked[1]) if asked else 0
                if first and first >= len(data):
                    return self.send(416, Content_Range=f"bytes */{len(data)}")
                if not first:
                    return self.send(200, data, cut)
                return self.send(206, data[first:], cut,
                                 Content_Range=f"bytes {first}-{len(data) - 1}/{len(data)}")

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # clients that are killed
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def answer(self, handler, server, path):
        data, large = self._find(server, path)
        for fault in self.faults:
            if fault(handler, path, data):
                return
        if data is None:
            handler.send(404, X_Error_Code="EntryNotFound")
        elif large:
            digest = hashlib.sha256(data).hexdigest()
            handler.send(302, Location=f"{self.store_url}/{digest}/{path.rsplit('/', 1)[1]}",
                         X_Linked_Etag=f'"{digest}"', X_Linked_Size=str(len(data)))
        else:
            handler.send_file(data)

    def _find(self, server, path):
        """(bytes, whether they are in the store)."""
        if server == "store":
            for files in self.commits.values():
                for data in files.values():
                    if path.startswith(f"/{hashlib.sha256(data).hexdigest()}/"):
                        return data, False
            return None, False
        found = re.fullmatch(rf"/api/models/{re.escape(self.repo)}/revision/([^/]+)", path)
        if found:
            revision = urllib.parse.unquote(found[1])
            commit = self.refs.get(revision, revision)
            if commit not in self.commits:
                return None, False
            return json.dumps(self.describe(self.listing(commit))).encode(), False
        found = re.fullmatch(rf"/{re.escape(self.repo)}/resolve/([0-9a-f]+)/(.+)", path)
        name = urllib.parse.unquote(found[2]) if found else None
        data = self.commits.get(found[1], {}).get(name) if found else None
        return data, data is not None and name.endswith(".safetensors")

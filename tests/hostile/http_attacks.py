"""Attacks over HTTP/1.1, as those of attacks.py."""

import functools
import json
import os
import re
import resource
import select
import socket
import time

from attacks import Harm

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "encoder")
EMBED, TOKENIZE = "/models/embed/embed", "/models/embed/tokenize"
PREDICT, INFER = "/models/rank/predict", "/v2/models/embed/infer"
GOOD = b'{"inputs":"a"}'
MILLION = 1_000_000
TRANSFER_SECONDS = 3


KEPT = 128 << 20  # what the server may keep of memory after an attack: twice --max-kept-bytes
CROWD = "127.0.0.3"  # where those come from who open as many connections as they can


def connect(target, timeout: float = 20, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.http_port), timeout, (source, 0))


def head(path: str, fields: str, method: str = "POST") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: castor\r\n{fields}\r\n".encode()


def exchange(target, request: bytes, timeout: float = 20) -> bytes:
    """Sends bytes; returns what comes until the server closes, or b"" if it goes without a word."""
    with connect(target, timeout) as peer:
        seen = b""
        try:
            peer.sendall(request)
        except OSError:
            pass  # it has refused the request and says why
        try:
            while more := peer.recv(1 << 20):
                seen += more
        except OSError:
            pass
        return seen


def body_of(answer: bytes) -> bytes:
    header, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in header:
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[:int(size, 16)], body[int(size, 16) + 2:]
    return whole


def post(target, path: str, body: bytes, fields: str = "") -> tuple[str, bytes]:
    """One call on a connection of its own: its status, "" without an answer, and the body."""
    answer = exchange(target, head(path, f"Connection: close\r\n{fields}Content-Length: "
                                         f"{len(body)}\r\n") + body)
    return answer[9:12].decode(), body_of(answer)


def good_row(target) -> list:
    status, body = post(target, EMBED, GOOD)
    if status != "200":
        raise Harm(f"a good call is answered with {status or 'nothing'} {body[:100]!r}")
    return json.loads(body)[0]


def unharmed(attack):
    """The attack, after which a good call must be answered as before, and memory given back."""

    def checked(target) -> str:
        before, resident = good_row(target), target.resident()
        try:
            seen = attack(target)
        except Harm:
            time.sleep(1)  # if that was its end, run.py shall see it
            raise
        if good_row(target) != before:
            raise Harm("a good call is answered otherwise than before")
        end = time.monotonic() + 20
        while target.resident() > resident + KEPT:
            if time.monotonic() > end:
                raise Harm(f"it keeps {(target.resident() - resident) >> 20} MiB")
            time.sleep(0.2)
        return seen

    return functools.wraps(attack)(checked)


def many(element: bytes, count: int = MILLION) -> bytes:
    return b",".join([element] * count)


def nested(opening: bytes, closing: bytes = b"") -> bytes:
    return b'{"inputs":' + opening * MILLION + closing * MILLION + b"}"


def inputs(content: bytes) -> bytes:
    return b'{"inputs":[' + content + b"]}"


def number(digits: bytes) -> bytes:
    return b'{"inputs":"a","extra":' + digits + b"}"


NUMBERS = [b"9" * MILLION, b"0." + b"9" * MILLION, b"1e" + b"9" * MILLION, b"1e-" + b"9" * MILLION,
           b"9" * 1000 + b"e-1000", b"1" * 300 + b"." + b"5" * 100000, b"1e-400", b"-1e-2147483648",
           *[b"0." + b"0" * zeros + digits for zeros in (300, 340, 400, 12000, MILLION)
             for digits in (b"1", b"123456789012345678901", b"9" * 800)]]

# Each with the path that it goes to.
JSON_BOMBS = [
    *[(EMBED, nested(*pair)) for pair in ((b"[",), (b"[", b"]"), (b'{"a":',))],
    (EMBED, b"{" + b",".join(b'"m%d":1' % i for i in range(MILLION)) + b"}"),
    (EMBED, b'{"inputs":{' + many(b'"x":1') + b',"text":"a"}}'),
    *[(EMBED, inputs(many(element))) for element in (b'""', b"[]", b"{}", b"null", b"")],
    *[(EMBED, number(digits)) for digits in NUMBERS],
    (EMBED, b'{"inputs":"' + b"\\u0000" * MILLION + b'"}'),
    (TOKENIZE, b'{"inputs":"' + b"\\u0000" * MILLION + b'"}'),
    (EMBED, inputs(many(b'"a"', 4096))), (EMBED, b'{"inputs":"a"' + b" " * (8 << 20) + b"}"),
    (EMBED, b'{"inputs":"' + b" " * (8 << 20) + b'"}'),
    (EMBED, b'{"model":"' + b"m" * (8 << 20) + b'","inputs":"a"}'),
    *[(path, template % text) for text in (b"\xff\xfe", b"\\ud800", b"\\udc00", b"\xed\xa0\x80")
      for path, template in ((EMBED, b'{"inputs":"%s"}'), (PREDICT, b'{"inputs":[["%s"]]}'),
                             (EMBED, b'{"inputs":"a","prompt_name":"%s"}'))],
    (PREDICT, inputs(many(b'["",""]'))),
    ("/models/embed/decode", b'{"ids":[' + many(b"[]") + b"]}"),
    ("/models/embed/decode", b'{"ids":[' + many(b"1") + b"]}"),
    *[(INFER, inputs(many(element))) for element in (b"{}", b'{"data":[]}')],
    (INFER, b'{"inputs":[],"outputs":[' + many(b"{}") + b"]}"),
    (INFER, b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":' +
     b"[" * MILLION + b"]" * MILLION + b"}]}"),
]


@unharmed
def http_json_bombs(target) -> str:
    """Bodies that are deep, long, of a million elements, or of numbers without end."""
    for count, (path, bomb) in enumerate(JSON_BOMBS):
        status, body = post(target, path, bomb)
        if status not in {"200", "400", "413", "429"}:
            raise Harm(f"number {count}, {path} {bomb[:40]!r}..., is answered with "
                       f"{status or 'nothing'} {body[:200]!r}")
    return f"{len(JSON_BOMBS)} answered"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n" % len(body) + body + b"\r\n"


LAST = b"0\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
# Where another may see another end of the body: fields, and the body.
AMBIGUOUS = [
    *[(fields, GOOD) for fields in (
        "Content-Length: 14\r\nContent-Length: 14\r\n",
        "Content-Length: 14\r\nContent-Length: 0\r\n",
        "Content-Length: 14, 14\r\n", "Content-Length: +14\r\n", "Content-Length: -1\r\n",
        "Content-Length: 0x0e\r\n", "Content-Length: \r\n", "Content-Length : 14\r\n",
        "Content-Length: 18446744073709551630\r\n", "X: a\nContent-Length: 14\r\n",
        "X: a\rContent-Length: 14\r\n", "X: a\0b\r\nContent-Length: 14\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 14\r\n")],
    *[(fields, chunk(GOOD) + LAST) for fields in (
        CHUNKED + "Content-Length: 14\r\n", "Content-Length: 4\r\n" + CHUNKED, CHUNKED * 2,
        "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n")],
    *[(fields, b"") for fields in (
        "Transfer-Encoding: identity\r\n", "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding: gzip\r\n")],
    *[(CHUNKED, size + b"\r\n" + GOOD + b"\r\n" + LAST) for size in (
        b"+e", b"-1", b"0xe", b" e", b"1000000000000000e", b"ffffffffffffffff", b"e;a\nb", b"")],
    (CHUNKED, b"e\n" + GOOD + b"\r\n" + LAST), (CHUNKED, b"e\r\n" + GOOD + b"XX" + LAST),
    (CHUNKED, chunk(GOOD) + b"0\r\nContent-Length: 5\r\n\r\n"),
]
# Where it is clear: a request after them is answered.
CLEAR = [("Content-Length: 14\r\n", GOOD), (CHUNKED, chunk(GOOD) + LAST),
         (CHUNKED, b"e;name=value\r\n" + GOOD + b"\r\n" + LAST),
         (CHUNKED, b"%x\r\n{\r\n" % 1 + chunk(GOOD[1:]) + LAST)]
HIDDEN = head("/hidden", "Connection: close\r\n", "GET")


@unharmed
def http_smuggling(target) -> str:
    """Requests whose end is open to dispute. What follows must not be taken for a request."""
    for fields, body in AMBIGUOUS:
        answer = exchange(target, head(EMBED, fields) + body + HIDDEN, 1)
        if b"/hidden is no path" in answer or answer.count(b"HTTP/1.1 ") > 1:
            raise Harm(f"after {fields!r} {body[:30]!r} another request is read")
        if answer[9:12] == b"200":
            raise Harm(f"{fields!r} {body[:30]!r} is taken for one request")
    for fields, body in CLEAR:
        answer = exchange(target, head(EMBED, fields) + body + HIDDEN, 5)
        if re.findall(rb"HTTP/1.1 (\d+)", answer) != [b"200", b"404"]:
            raise Harm(f"{fields!r} {body[:30]!r} is answered with {answer[:200]!r}")
    for path in (EMBED, "/no/such/path"):  # a whole request as a body, read or not
        answer = exchange(target, head(path, f"Content-Length: {len(HIDDEN)}\r\n") + HIDDEN, 1)
        if answer.count(b"HTTP/1.1 ") > 1 or b"/hidden is no path" in answer:
            raise Harm(f"the body of {path} is read as a request")
    return f"{len(AMBIGUOUS)} refused"


def attention(rows: int, width: int, binary: bool) -> bytes:
    def tensor(name, shape, count):
        return {"name": name, "datatype": "FP32", "shape": shape, "data": [1] * count}
    return json.dumps({"parameters": {"binary_data_output": binary}, "inputs": [
        tensor("query", [rows, 1, 1], rows), tensor("key", [1, 1, 1], 1),
        tensor("value", [1, 1, width], width)]}).encode()


@unharmed
def http_strange_but_right(target) -> str:
    """Requests with empty texts, lists in place of texts and large answers: JSON comes back."""
    def checked(path: str, request, right) -> None:
        status, body = post(target, path, request if isinstance(request, bytes)
                            else json.dumps(request).encode())
        try:
            good = right(status, body)
        except ValueError:
            good = False
        if not good:
            raise Harm(f"{path} {str(request)[:80]} is answered with {status} {body[:100]!r}")

    for texts in (["a", "", "a"], ["", "", "a"], ["a", "", ""], ["", ""], [""]):
        checked(TOKENIZE, {"inputs": texts, "add_special_tokens": False},
                lambda status, body, texts=texts: status == "200" and
                [len(row) for row in json.loads(body)] == [len(text) for text in texts])
    for text in (["a", "b"], {"text": "a"}, []):
        checked("/models/embed/vectors", {"text": text}, lambda status, body: status == "400" and
                "error" in json.loads(body))
    checked(PREDICT, {"inputs": [["a", 5]]}, lambda status, body: status == "400")
    for rows in (64, 128, 1024):
        checked("/v2/models/castor_attention/infer", attention(rows, 256, False),
                lambda status, body, rows=rows: status == "200" and
                len(json.loads(body)["outputs"][0]["data"]) == 256 * rows)
        checked("/v2/models/castor_attention/infer", attention(rows, 256, True),
                lambda status, body, rows=rows: status == "200" and len(body) > 1024 * rows)
    return "all right"


@unharmed
def http_pipelined_unread(target) -> str:
    """Requests one after another on 64 connections, whose answers nobody reads."""
    peers = [connect(target) for _ in range(64)]
    requests = [head("/", "", "GET") * 200, head("/no/such/path", "", "GET") * 200,
                (head(EMBED, "Content-Length: 14\r\n") + GOOD) * 200]
    for number, peer in enumerate(peers):
        peer.settimeout(0.2)
        try:
            for _ in range(50):
                peer.sendall(requests[number % len(requests)])
        except OSError:
            pass  # it takes no more
    time.sleep(min(target.seconds, 3))
    for peer in peers:
        peer.close()
    return f"{len(peers)} connections"


def crowd(target, wanted: int, begin: bytes) -> list[socket.socket]:
    """As many connections as one host gets, at most so many, that have sent this much."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peers = []
    for _ in range(min(wanted, hard - 1000)):
        try:
            peers.append(connect(target, 20, CROWD))
            peers[-1].setblocking(False)
            peers[-1].send(begin)
        except OSError:
            pass  # still_open sees it
    time.sleep(0.5)
    return still_open(peers)


def still_open(peers: list[socket.socket], part: bytes = b"") -> list[socket.socket]:
    """Sends each a part and reads what has come; returns those that the server has not closed."""
    left = []
    for peer in peers:
        try:
            peer.send(part)
            seen = peer.recv(1 << 16)
        except BlockingIOError:
            seen = b"?"
        except OSError:
            seen = b""
        left.append(peer) if seen else peer.close()
    return left


def drip(target, begin: bytes, wanted: int = 10000) -> str:
    """A byte a second on as many connections as there may be. In the end none is left."""
    peers = crowd(target, wanted, begin)
    held, finish = len(peers), time.monotonic() + max(target.seconds, 3 * TRANSFER_SECONDS)
    while time.monotonic() < finish:
        peers = still_open(peers, b"a")
        time.sleep(1)
    left = len(peers)
    for peer in peers:
        peer.close()
    if left > 0:
        raise Harm(f"{left} of {held} are still open")
    return f"{held} of {wanted} let in"


@unharmed
def http_get_flood(target) -> str:
    """GET requests, 20 at once, on 500 connections."""
    requests, finish, rounds = head("/health", "", "GET") * 20, time.monotonic() + target.seconds, 0
    peers = crowd(target, 500, b"")
    while time.monotonic() < finish:
        peers, rounds = still_open(peers, requests), rounds + 1
        time.sleep(0.05)  # the neighbour is a thread of this program
    for peer in peers:
        peer.close()
    return f"{len(peers)} connections, {rounds} rounds"


@unharmed
def http_dripped_headers(target) -> str:
    """Headers that come a byte a second."""
    return drip(target, b"GET / HTTP/1.1\r\nX: ")


@unharmed
def http_idle_after_a_call(target) -> str:
    """A connection on which no other request comes is closed, or the next one would be lost."""
    with connect(target, 3 * TRANSFER_SECONDS) as peer:
        peer.sendall(head(EMBED, f"Content-Length: {len(GOOD)}\r\n") + GOOD)
        try:
            return f"{peer.recv(1 << 16)[9:12].decode()}, closed{peer.recv(1).decode()}"
        except TimeoutError:
            raise Harm("it is still open") from None


@unharmed
def http_dripped_bodies(target) -> str:
    """Bodies that come a byte a second."""
    return drip(target, head(EMBED, "Content-Length: 1000\r\n"))


@unharmed
def http_unsent_bodies(target) -> str:
    """Bodies of 60 MiB that are announced and never come."""
    return drip(target, head(EMBED, f"Content-Length: {60 << 20}\r\n"), 2000)


HEAVY_TEXTS = json.dumps({"inputs": ["the answers of the mill " * 20] * 2048}).encode()


@unharmed
def http_unread_embed_all(target) -> str:
    """Token embeddings of 2,048 texts that nobody reads, on 8 connections."""
    request = head("/models/embed/embed_all", f"Content-Length: {len(HEAVY_TEXTS)}\r\n")
    peers = [connect(target, 20, CROWD) for _ in range(8)]
    for peer in peers:
        peer.sendall(request + HEAVY_TEXTS)
    time.sleep(max(target.seconds, 10))
    answered = sum(peer.recv(12)[9:] == b"200" for peer in select.select(peers, [], [], 0)[0])
    for peer in peers:
        peer.close()
    return f"{answered} answered"


@unharmed
def http_gone_while_computing(target) -> str:
    """Clients that leave when the server has begun to compute."""
    finish = time.monotonic() + max(target.seconds, 5)
    while time.monotonic() < finish:
        peers = [connect(target, 20, CROWD) for _ in range(8)]
        for peer in peers:
            peer.sendall(head(EMBED, f"Content-Length: {len(HEAVY_TEXTS)}\r\n") + HEAVY_TEXTS)
        time.sleep(0.2)
        for peer in peers:
            peer.close()
    end = time.monotonic() + 10
    while target.metric("castor_inflight_requests") > 2:  # the neighbour's
        if time.monotonic() > end:
            raise Harm("their requests are still in the queue")
        time.sleep(0.1)
    return "all gone"


CROWDS = [http_get_flood, http_dripped_headers, http_idle_after_a_call, http_dripped_bodies,
          http_unsent_bodies, http_unread_embed_all, http_gone_while_computing]
HTTP_ATTACKS = [http_json_bombs, http_smuggling, http_strange_but_right, http_pipelined_unread,
                *CROWDS]
for attack in HTTP_ATTACKS:
    attack.arguments = ["--model", f"rank={GOLDEN}/heads/cross_encoder",
                        "--model", f"embed={GOLDEN}/tiny_bert",
                        "--transfer-timeout", f"{TRANSFER_SECONDS}s"]
for attack in CROWDS:
    attack.serves_neighbour = True

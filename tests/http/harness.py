"""A table of calls to a server: each is a public method of a subclass of Calls."""

import base64
import importlib.metadata
import json
import sys

import numpy as np
import requests

TOLERANCE = 2e-5


class Calls:
    """What a client or a program does. A method raises if an answer is not as it must be. What
    run.py computed are members: texts, vectors and so on."""

    package = ""  # whose version the table shows

    def __init__(self, url, expected):
        self.__dict__.update(expected)
        self.url, self.v1 = url, url + "/v1"
        self.order = sorted(range(len(self.scores)), key=lambda i: -self.scores[i])

    def send(self, method, path, status=200, **options):
        """A request, whose answer must have this status."""
        answer = requests.request(method, self.url + path, timeout=60, **options)
        sent = str(options.get("json") or options.get("data"))[:200]
        told = f"{method} {path} {sent} -> {answer.status_code}: {answer.text[:300]}"
        assert answer.status_code == status, f"not {status}: {told}"
        return answer

    def post(self, path, body, status=200, **options):
        return self.send("POST", path, status, json=body, **options).json()

    def rerank(self, path, **more):
        return self.post(path, {"query": self.query, "documents": self.documents} | more)

    def embedded(self, answer):
        """OpenAI's answer to all texts."""
        same([each["embedding"] for each in answer["data"]], self.vectors)
        equal([each["index"] for each in answer["data"]], list(range(len(self.texts))))
        equal(answer["usage"]["total_tokens"], self.tokens)

    def ranked(self, results, with_texts=False):
        """All documents, the best first: dictionaries or objects, in TEI's form or in Cohere's."""
        rows = [each if isinstance(each, dict) else vars(each) for each in results]
        equal([each["index"] for each in rows], self.order)
        same([each.get("relevance_score", each.get("score")) for each in rows],
             [self.scores[i] for i in self.order])
        for each in rows if with_texts else []:
            document = each.get("document") or each
            text = document["text"] if isinstance(document, dict) else document.text
            equal(text, self.documents[each["index"]])


def same(got, expected):
    """Numbers, where a row may be OpenAI's base64."""
    got = [np.frombuffer(base64.b64decode(r), "<f4") if isinstance(r, str) else r for r in got]
    equal(np.shape(got), np.shape(expected))
    worst = np.max(np.abs(np.subtract(got, expected)))
    assert worst <= TOLERANCE, f"off by {worst:.1e}"


def equal(got, expected):
    assert got == expected, f"{str(got)[:600]} is not {str(expected)[:200]}"


def raised(kind, function, *arguments, **options):
    """The error, which must come and be of this kind."""
    try:
        answer = function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}, but {str(answer)[:300]}")


def row(who, what, call):
    """Makes a call and prints its row. Returns whether it was as it must be."""
    problem = ""
    try:
        call()
    except Exception as error:
        problem = f"\n       {type(error).__name__}: {' '.join(str(error).split())[:900]}"
    result = "FAILED" if problem else "ok"
    print(f"{result:<7}{who:<25}{what.replace('_', ' ')}{problem}", flush=True)
    return not problem


def main():
    """Of a program with subclasses of Calls: PROGRAM URL EXPECTED."""
    with open(sys.argv[2]) as file:
        expected = json.load(file)
    good = []
    for part in Calls.__subclasses__():
        who = part.package and f"{part.package} {importlib.metadata.version(part.package)}"
        for name, method in vars(part).items():
            if callable(method) and not name.startswith("_"):
                calls = part(sys.argv[1], expected)
                good.append(row(who or part.__name__, name, getattr(calls, name)))
    sys.exit(0 if all(good) else 1)

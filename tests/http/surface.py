"""What no single client shows.   surface.py URL EXPECTED    see run.py"""

import concurrent.futures
import http.client
import json

import openai

from harness import Calls, equal, main, raised

PAGE = {"Origin": "https://page.example"}
FROM_A_PAGE = ["authorization", "content-type", "x-stainless-arch", "x-stainless-lang",
               "x-stainless-package-version", "x-stainless-retry-count", "x-stainless-timeout"]


class Paths(Calls):
    def the_root_is_a_plain_page(self):
        page = self.send("GET", "/")
        assert page.headers["Content-Type"].startswith(("text/plain", "text/html")), page.headers
        assert "/docs" in page.text and "minilm" in page.text, page.text
        equal(self.send("HEAD", "/").text, "")

    def docs_is_OpenAPI_whose_examples_work(self):
        paths = self.send("GET", "/docs").json()["paths"]
        assert {"/v1/embeddings", "/v2/rerank", "/embed", "/vectors"} <= set(paths), paths
        models = {"rerank": "rerank", "score": "rerank", "classify": "classify",
                  "predict": "classify", "sparse": "splade"}
        for path, methods in paths.items():
            model = next((models[word] for word in models if word in path), "minilm")
            if "get" in methods:
                self.send("GET", path.replace("{model}", model))
            body = methods.get("post", {}).get("requestBody", {}).get("content")
            if body and "example" in body["application/json"]:
                example = body["application/json"]["example"] | {"model": model}
                self.post(f"/models/{model}{path}".replace("{model}", model), example)

    def a_model_by_path_and_header_and_body(self):
        for path, more, headers in (("/models/minilm/v1/embeddings", {}, {}),
                                    ("/v1/embeddings", {}, {"castor-model": "minilm"}),
                                    ("/embeddings?api-version=1", {"model": "minilm"}, {})):
            self.embedded(self.post(path, {"input": self.texts} | more, headers=headers))

    def a_body_in_chunks(self):
        body = json.dumps({"input": self.texts, "model": "minilm"}).encode()
        self.embedded(self.send("POST", "/v1/embeddings", data=iter([body[:9], body[9:]])).json())


class Errors(Calls):
    def _openai(self, answer, code):
        equal(set(answer["error"]), {"message", "type", "param", "code"})
        equal((answer["error"]["type"], answer["error"]["code"]), ("invalid_request_error", code))

    def another_path_or_method(self):
        self._openai(self.send("GET", "/v1/strange", 404).json(), "NOT_SERVED")
        answer = self.send("GET", "/v1/embeddings", 405)
        self._openai(answer.json(), "NOT_SERVED")
        equal(answer.headers["Allow"], "POST")

    def an_unknown_model_in_the_path(self):
        answer = self.post("/models/strange/v1/embeddings", {"input": "a"}, 404)
        self._openai(answer, "MODEL_NOT_FOUND")

    def the_form_of_OpenAI(self):
        for path, body in (("/v1/embeddings", {"model": "minilm"}),
                           ("/v1/embeddings", {"model": "minilm", "input": [1.5]}),
                           ("/v1/rerank", {"model": "minilm", "query": "a", "documents": ["b"]})):
            self._openai(self.post(path, body, 400), "INVALID_FIELD")
        for body in (b'{"input": ', b'"\xff"', b""):
            answer = self.send("POST", "/v1/embeddings", 400, data=body).json()
            self._openai(answer, "MALFORMED_MESSAGE")

    def the_form_of_TEI(self):
        for path, body in (("embed", b'{"inputs":'), ("embed", b"{}"), ("rerank", b'{"query":1}')):
            answer = self.send("POST", "/models/rerank/" + path, 400, data=body).json()
            assert isinstance(answer["error"], str), answer
            equal(answer["error_type"], "Validation")

    def an_error_has_the_name_of_its_protocol(self):
        for name in ("texts", "documents"):
            answer = self.post("/rerank", {"query": "a", name: []}, 400)
            assert name in str(answer), answer

    def a_large_body_is_refused_before_it_is_sent(self):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=10)
        connection.putrequest("POST", "/v1/embeddings")
        connection.putheader("Content-Length", str(10**10))
        connection.endheaders()
        equal(connection.getresponse().status, 413)


class CORS(Calls):
    def a_page_may_send_what_the_SDK_sends(self):
        asks = {"Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": ",".join(FROM_A_PAGE)}
        answer = self.send("OPTIONS", "/v1/embeddings", 204, headers=PAGE | asks).headers
        assert "POST" in answer["Access-Control-Allow-Methods"], answer
        allowed = answer["Access-Control-Allow-Headers"].lower().replace(" ", "").split(",")
        equal([name for name in FROM_A_PAGE if name not in allowed], [])

    def a_page_may_read_answers_and_errors(self):
        for path, status in (("/v1/models", 200), ("/v1/models/strange", 404)):
            answer = self.send("GET", path, status, headers=PAGE)
            equal(answer.headers["Access-Control-Allow-Origin"], "*")


class Guarded(Calls):
    """A server with tokens, messages of 64 KiB, and one request at a time."""

    def _embed(self, key, retries=0, text="a", headers=None):
        sdk = openai.OpenAI(base_url=self.guarded + "/v1", api_key=key, max_retries=retries)
        return sdk.embeddings.create(model="minilm", input=text, extra_headers=headers)

    def tokens_as_Bearer_and_as_api_key(self):
        self._embed(self.token)
        self._embed("any", headers={"Authorization": openai.Omit(), "api-key": self.token})
        error = raised(openai.AuthenticationError, self._embed, "wrong")
        equal((error.code, error.type), ("UNAUTHENTICATED", "authentication_error"))

    def a_body_over_the_limit(self):
        error = raised(openai.APIStatusError, self._embed, self.token, text="a" * 100_000)
        equal((error.status_code, error.code), (413, "TOO_LARGE"))

    def a_full_queue_says_when_to_retry(self):
        def refusals(retries):
            def one(_):
                try:
                    self._embed(self.token, retries, ["long " * 250] * 16)
                except openai.RateLimitError as error:
                    return error

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                return [error for error in pool.map(one, range(4)) if error]

        first = refusals(0)
        assert first, "none was refused"
        for error in first:
            equal((error.code, error.type), ("QUEUE_FULL", "rate_limit_error"))
            assert int(error.response.headers["retry-after"]) >= 1, error.response.headers
        equal(refusals(30), [])


if __name__ == "__main__":
    main()

"""The requests of programs that cannot be installed here, as their own code makes them, and what
that code reads in the answers.   programs.py URL EXPECTED    see run.py"""

import json

import numpy as np

from harness import Calls, equal, main, same

MINILM = "/models/minilm"  # where a protocol has no model, but an address may have a path
JINA = "jina-reranker-v2-base-multilingual"


class OpenWebUI(Calls):  # backend/open_webui/retrieval/utils.py, models/external.py
    def embeddings_with_a_prefix_and_its_headers(self):
        headers = {"Authorization": "Bearer any", "X-OpenWebUI-User-Name": "a%20b"}
        for more in ({}, {"prefix": "query: "}, {"input_type": "query"}):
            body = {"input": self.texts, "model": "minilm"} | more
            self.embedded(self.post("/v1/embeddings", body, headers=headers))

    def rerank_scores_every_document(self):
        self.ranked(self.rerank("/v1/rerank", model="rerank", top_n=5)["results"])


class Dify(Calls):  # python/dify_plugin/interfaces/model/openai_compatible
    def its_check_and_embeddings(self):
        assert "model" in self.post("/v1/embeddings", {"input": "ping", "model": "minilm"})
        self.embedded(self.post("/v1/embeddings", {"input": self.texts, "model": "minilm",
                                                   "user": "u", "encoding_format": "float"}))

    def rerank_with_a_null_top_n(self):
        answer = self.rerank("/v1/rerank", model="rerank", top_n=None, return_documents=True)
        self.ranked(answer["results"], with_texts=True)


class N8n(Calls):  # EmbeddingsOpenAi.node.ts, then LangChain.js, then OpenAI's SDK for Node
    def models_with_embed_in_their_names_and_base64(self):
        listed = [each["id"] for each in self.send("GET", "/v1/models").json()["data"]]
        equal([name for name in listed if "embed" in name], ["minilm-embed"])
        self.embedded(self.post("/v1/embeddings", {"model": "minilm-embed", "input": self.texts,
                                                   "encoding_format": "base64"}))


class LibreChat(Calls):  # danny-avila/agents src/tools/search/rerankers.ts, rag_api app/config.py
    def rerank_as_at_Jina_and_Cohere_by_the_name_there(self):
        answer = self.rerank("/v1/rerank", model=JINA, top_n=5, return_documents=True)
        self.ranked(answer["results"], with_texts=True)
        self.ranked(self.rerank("/v2/rerank", model=JINA, top_n=5)["results"])

    def huggingfacetei_posts_to_the_root(self):
        same(self.post("/", {"inputs": self.texts}), self.vectors)


class Milvus(Calls):  # internal/util/function/models. It replaces its address's path.
    def embed_at_the_root(self):
        for more in ({}, {"truncate": True, "truncation_direction": "Right"}):
            same(self.post("/embed", {"inputs": self.texts} | more), self.vectors)

    def tei_rerank_at_the_root(self):
        body = {"query": self.query, "texts": self.documents, "truncation_direction": "Right"}
        self.ranked(self.post("/rerank", body | {"truncate": True}))

    def vllm_provider_names_no_model(self):
        answer = self.rerank("/rerank")
        self.ranked(answer["results"])
        assert answer["id"] and answer["model"] == "rerank" and answer["usage"]["total_tokens"] > 0
        body = {"input": self.texts, "encoding_format": "float"}
        self.embedded(self.post("/v1/embeddings", body))


class Weaviate(Calls):  # usecases/modulecomponents/clients/transformers, reranker-transformers
    def vectors_of_a_text_and_of_texts(self):
        config = {"pooling_strategy": "masked_mean", "task_type": "query"}
        # Its Go struct, empty members included, without a Content-Type.
        body = {"text": self.texts[0], "dims": 0, "vector": None, "error": "", "config": config}
        answer = self.send("POST", MINILM + "/vectors", data=json.dumps(body)).json()
        equal((answer["text"], answer["dims"]), (self.texts[0], 384))
        same(answer["vector"], self.vectors[0])
        for more, expected in (({}, self.vectors), ({"dimensions": 64}, self.short_vectors)):
            body = {"texts": self.texts, "config": config | more}
            same(self.post(MINILM + "/vectors", body)["vectors"], expected)

    def an_error_is_a_text(self):
        answer = self.post(MINILM + "/vectors", {"text": "a", "config": {"dimensions": 999}}, 400)
        assert "dimensions" in answer["error"], answer

    def meta_and_ready(self):
        for prefix in ("", MINILM):
            assert isinstance(self.send("GET", prefix + "/meta").json(), dict)
            self.send("GET", prefix + "/.well-known/ready")

    def rerank_in_the_order_of_documents(self):
        body = json.dumps({"query": self.query, "documents": self.documents, "property": ""})
        scores = self.send("POST", "/rerank", data=body).json()["scores"]
        equal([each["document"] for each in scores], self.documents)
        same([each["score"] for each in scores], self.scores)


class Elasticsearch(Calls):  # services/huggingface/{request,response}: it has the whole URL
    def embeddings(self):
        same(self.post(MINILM + "/embed", {"inputs": self.texts}), self.vectors)
        assert isinstance(self.post(MINILM + "/embed", {"inputs": 7}, 400)["error"], str)

    def rerank_has_no_other_keys(self):
        for more, keys in (({}, {"index", "score"}), ({"return_text": False}, {"index", "score"}),
                           ({"return_text": True, "top_n": 5}, {"index", "score", "text"})):
            answer = self.post("/rerank", {"query": self.query, "texts": self.documents} | more)
            self.ranked(answer, with_texts="text" in keys)
            assert all(set(each) == keys for each in answer), answer


class TEI(Calls):
    def embed_and_its_options(self):
        for inputs, more, expected in ((self.texts[0], {}, self.vectors[:1]),
                                       (self.texts, {"normalize": False}, self.raw_vectors),
                                       (self.texts, {"dimensions": 64}, self.short_vectors)):
            same(self.post(MINILM + "/embed", {"inputs": inputs} | more), expected)

    def embed_all_and_tokenize_and_decode(self):
        same(self.post(MINILM + "/embed_all", {"inputs": self.texts[:1]})[0], self.token_rows)
        tokens = self.post(MINILM + "/tokenize", {"inputs": self.texts[:2]})
        equal([[each["id"] for each in row] for row in tokens], self.ids[:2])
        equal([tokens[0][2][key] for key in ("text", "special", "start", "stop")],
              ["beaver", False, 2, 8])
        equal(self.post(MINILM + "/decode", {"ids": self.ids[0]}), self.texts[:1])

    def predict_a_text_and_a_batch(self):
        path = "/models/classify/predict"
        answers = [self.post(path, {"inputs": self.documents[0]})]
        answers += self.post(path, {"inputs": [[text] for text in self.documents]})
        for answer, scores in zip(answers, self.classes[:1] + self.classes, strict=True):
            best = sorted(range(3), key=lambda i: -scores[i])
            equal([each["label"] for each in answer], [self.labels[i] for i in best])
            same([each["score"] for each in answer], [scores[i] for i in best])

    def info_and_health(self):
        about = self.send("GET", MINILM + "/info").json()
        equal((about["model_id"], about["max_input_length"]), ("minilm", 256))
        assert about["max_client_batch_size"] >= 2048 and "embedding" in about["model_type"], about
        self.send("GET", "/health")


class VLLM(Calls):
    def score_and_classify_and_pooling(self):
        for v1 in ("", "/v1"):
            pairs = {"model": "rerank", "text_1": self.query, "text_2": self.documents}
            same([each["score"] for each in self.post(v1 + "/score", pairs)["data"]], self.scores)
            texts = {"model": "classify", "input": self.documents}
            data = self.post(v1 + "/classify", texts)["data"]
            same([each["probs"] for each in data], self.classes)
            equal(data[0]["label"], self.labels[np.argmax(self.classes[0])])
        answer = self.post("/pooling", {"model": "minilm", "input": self.texts[:1]})
        norms = np.linalg.norm(self.token_rows, axis=1, keepdims=True)
        same(answer["data"][0]["data"], np.divide(self.token_rows, norms))


if __name__ == "__main__":
    main()

"""Clients that others wrote.   clients.py URL EXPECTED    see run.py"""

import asyncio
import os

import cohere
import litellm
import llama_index.core
import numpy as np
import openai
import tritonclient.http as triton
from haystack import Document
from huggingface_hub import InferenceClient
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from tritonclient.utils import InferenceServerException

from harness import Calls, equal, main, raised, same

try:
    import haystack_integrations.components.embedders.huggingface_api as embedders
    import haystack_integrations.components.rankers.huggingface_api as rankers
except ImportError:  # before Haystack 3
    from haystack.components import embedders, rankers

WAY_OUT = "check_embedding_ctx_length=False"
litellm.suppress_debug_info = True


class OpenAI(Calls):
    package = "openai"

    def _client(self, kind=openai.OpenAI):
        return kind(base_url=self.v1, api_key="any", max_retries=0)

    def _embed(self, **options):
        options = {"model": "minilm", "input": self.texts} | options
        return self._client().embeddings.create(**options)

    def _refused(self, param, **options):
        error = raised(openai.BadRequestError, self._embed, **options)
        equal((error.param, error.code), (param, "INVALID_FIELD"))
        equal(error.type, "invalid_request_error")
        return str(error)

    def embeddings_in_its_default_base64_and_in_float(self):
        for options in ({}, {"encoding_format": "float"}):
            answer = self._embed(**options)
            self.embedded(answer.model_dump())
            equal((answer.object, answer.model), ("list", "minilm"))

    def embeddings_as_base64_that_stays_text(self):
        rows = [each.embedding for each in self._embed(encoding_format="base64").data]
        assert all(isinstance(each, str) for each in rows)
        same(rows, self.vectors)

    def one_text_and_an_empty_one(self):
        same([self._embed(input=text).data[0].embedding for text in self.texts], self.vectors)

    def fewer_dimensions(self):
        for options in ({}, {"encoding_format": "float"}):
            rows = self._embed(dimensions=64, **options).data
            same([each.embedding for each in rows], self.short_vectors)

    def user_and_null_and_unknown_fields(self):
        body = dict.fromkeys(("encoding_format", "dimensions", "truncate")) | {"strange": [{}]}
        self.embedded(self._embed(user="u", encoding_format="float", extra_body=body).model_dump())

    def token_ids_are_refused_with_the_way_out(self):
        for ids in ([101, 102], [[101, 102], [103]]):
            assert WAY_OUT in self._refused("input", input=ids)

    def an_empty_list_is_not_token_ids(self):
        message = self._refused("input", input=[])
        assert "token ids" not in message, message

    def wrong_dimensions_and_formats(self):
        for wrong in ({"dimensions": 0}, {"dimensions": 385}, {"encoding_format": "base85"}):
            self._refused(*wrong, **wrong)

    def an_unknown_model(self):
        error = raised(openai.NotFoundError, self._embed, model="strange")
        equal((error.code, error.type), ("MODEL_NOT_FOUND", "invalid_request_error"))

    def prompts_of_a_model_that_has_none(self):
        for options in ({"model": "minilm-query"}, {"model": "minilm-passage"},
                        {"extra_body": {"input_type": "query"}}):
            self.embedded(self._embed(**options).model_dump())

    def models(self):
        listed = {model.id: model for model in self._client().models.list()}
        one = self._client().models.retrieve("minilm")
        equal((one.id, one.object, one.owned_by), ("minilm", "model", "castor"))
        equal(one.created, listed["minilm"].created)
        raised(openai.NotFoundError, self._client().models.retrieve, "strange")

    def two_thousand_texts(self):
        rows = self._embed(input=self.texts[:4] * 512).data
        same([each.embedding for each in rows], self.vectors[:4] * 512)

    def sixteen_calls_at_once_with_request_ids(self):
        async def all_of_them():
            async with self._client(openai.AsyncOpenAI) as sdk:
                return await asyncio.gather(*(sdk.embeddings.create(
                    model="minilm", input=self.texts, extra_headers={"x-request-id": str(i)})
                    for i in range(16)))

        for i, answer in enumerate(asyncio.run(all_of_them())):
            equal(answer._request_id, str(i))
            self.embedded(answer.model_dump())


class LangChain(Calls):
    package = "langchain-openai"

    def documents_and_a_query(self):
        embeddings = OpenAIEmbeddings(model="minilm", base_url=self.v1, api_key="any",
                                      check_embedding_ctx_length=False)
        same(embeddings.embed_documents(self.texts), self.vectors)
        same(embeddings.embed_query(self.texts[1]), self.vectors[1])

    def token_ids_are_refused_with_the_way_out(self):
        # Its vocabulary would come from the network; LlamaIndex brings it.
        os.environ["TIKTOKEN_CACHE_DIR"] = os.path.join(
            os.path.dirname(llama_index.core.__file__), "_static", "tiktoken_cache")
        embeddings = OpenAIEmbeddings(model="minilm", base_url=self.v1, api_key="any")
        error = raised(openai.BadRequestError, embeddings.embed_documents, self.texts)
        assert WAY_OUT in str(error), error


class LiteLLM(Calls):
    package = "litellm"

    def embeddings_by_openai_and_hosted_vllm(self):
        for model in ("openai/minilm", "hosted_vllm/minilm"):
            for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
                options |= {"api_base": self.v1, "api_key": "any"}
                answer = litellm.embedding(model, self.texts, **options)
                same([each["embedding"] for each in answer.data], self.vectors)
                equal(answer.usage.total_tokens, self.tokens)

    def an_unknown_model(self):
        error = raised((litellm.NotFoundError, litellm.BadRequestError), litellm.embedding,
                       "openai/strange", ["a"], api_base=self.v1, api_key="any")
        assert "strange" in str(error) and "/v1/models" in str(error), error

    def _rerank(self, model, path="", **options):
        return litellm.rerank(model=model, query=self.query, documents=self.documents,
                              api_base=self.url + path, api_key="any", **options).results

    def rerank_by_jina_ai_and_hosted_vllm_with_documents(self):
        for model in ("jina_ai/rerank", "hosted_vllm/rerank"):
            self.ranked(self._rerank(model, return_documents=True), with_texts=True)
            equal([each["index"] for each in self._rerank(model, top_n=2)], self.order[:2])

    def rerank_by_huggingface_and_cohere(self):
        self.ranked(self._rerank("huggingface/rerank"))
        self.ranked(self._rerank("cohere/rerank", "/v2/rerank"))


class LlamaIndex(Calls):
    package = "llama-index-core"

    def OpenAILikeEmbedding(self):
        model = OpenAILikeEmbedding("minilm", api_base=self.v1, api_key="any")
        same(model.get_text_embedding_batch(self.texts[:2]), self.vectors[:2])
        same(model.get_query_embedding(self.texts[0]), self.vectors[0])

    def TextEmbeddingsInference_at_the_path_of_a_model(self):
        model = TextEmbeddingsInference("minilm", base_url=self.url + "/models/minilm")
        same(model.get_text_embedding_batch(self.texts), self.vectors)

    def TextEmbeddingInference_reranks(self):
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in self.documents]
        ranker = TextEmbeddingInference(base_url=self.url, top_n=5)
        ranked = ranker.postprocess_nodes(nodes, QueryBundle(self.query))
        same([node.score for node in ranked], [self.scores[i] for i in self.order])
        # A year ago it took scores to be in the documents' order, which TEI's are not either.
        if "original_index" in ranker._postprocess_nodes.__code__.co_varnames:
            equal([node.text for node in ranked], [self.documents[i] for i in self.order])


class Cohere(Calls):
    package = "cohere"

    def _rerank(self, kind, **options):
        options = {"model": "rerank", "query": self.query, "documents": self.documents} | options
        return kind(api_key="any", base_url=self.url).rerank(**options)

    def rerank_by_version_2(self):
        answer = self._rerank(cohere.ClientV2, max_tokens_per_doc=4096)
        self.ranked(answer.results)
        assert answer.id and answer.meta.billed_units.search_units == 1, answer
        few = self._rerank(cohere.ClientV2, top_n=2).results
        equal([each.index for each in few], self.order[:2])

    def rerank_by_version_1_with_documents(self):
        documents = [{"text": text} for text in self.documents]
        answer = self._rerank(cohere.Client, documents=documents, return_documents=True)
        self.ranked(answer.results, with_texts=True)

    def an_unknown_model(self):
        error = raised(cohere.NotFoundError, self._rerank, cohere.ClientV2, model="strange")
        assert "strange" in str(error.body), error.body


class HuggingFace(Calls):
    package = "huggingface_hub"

    def feature_extraction_and_sentence_similarity(self):
        client = InferenceClient(token="any")
        tei = self.url + "/models/minilm"
        same(client.feature_extraction(self.texts, model=tei + "/embed"), self.vectors)
        same(client.sentence_similarity(*self.texts[:1], self.texts[1:], model=tei + "/similarity"),
             np.matmul(self.vectors[1:], self.vectors[0]))


class Haystack(Calls):
    package = "haystack-ai"

    def _embed(self, url):
        tei = {"api_type": "text_embeddings_inference", "api_params": {"url": url}, "token": None}
        got = embedders.HuggingFaceAPITextEmbedder(**tei).run(self.texts[0])
        same(got["embedding"], self.raw_vectors[0])  # its default is not to normalize
        tei |= {"normalize": True, "progress_bar": False}
        embedder = embedders.HuggingFaceAPIDocumentEmbedder(**tei)
        got = embedder.run([Document(content=text) for text in self.texts])["documents"]
        same([document.embedding for document in got], self.vectors)

    def embedders_at_the_path_of_a_model(self):
        self._embed(self.url + "/models/minilm/embed")

    def embedders_at_the_address_so_POST_to_the_root(self):
        self._embed(self.url)

    def ranker_with_scores_and_raw_scores(self):
        documents = [Document(content=text) for text in self.documents]
        for raw, expected in ((False, self.scores), (True, self.logits)):
            ranked = rankers.HuggingFaceTEIRanker(
                url=self.url, raw_scores=raw, token=None, max_retries=1).run(self.query, documents)
            same([each.score for each in ranked["documents"]], [expected[i] for i in self.order])

    def sparse_embedder(self):
        embedder = getattr(embedders, "HuggingFaceTEISparseTextEmbedder", None)  # Haystack 3 has it
        for text, expected in zip(self.documents, self.sparse) if embedder else ():
            got = embedder(api_base_url=self.url, token=None).run(text)["sparse_embedding"]
            same(list(zip(got.indices, got.values)), expected)


class Triton(Calls):
    package = "tritonclient"

    def _client(self):
        return triton.InferenceServerClient(self.url.removeprefix("http://"))

    def _texts(self, binary=True):
        texts = np.array([[text.encode()] for text in self.texts], dtype=np.object_)
        return [triton.InferInput("text", texts.shape, "BYTES").set_data_from_numpy(texts, binary)]

    def live_and_ready(self):
        client = self._client()
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("minilm") and client.is_model_ready("castor_attention", "1")
        assert not client.is_model_ready("strange")

    def metadata_and_index(self):
        client = self._client()
        about, model = client.get_server_metadata(), client.get_model_metadata("minilm")
        equal((about["name"], model["name"], model["versions"]), ("castor", "minilm", ["1"]))
        assert "binary_tensor_data" in about["extensions"]
        assert {"name": "text", "datatype": "BYTES", "shape": [-1, 1]} in model["inputs"], model
        assert "minilm" in [each["name"] for each in client.get_model_repository_index()]

    def texts_and_embeddings_in_JSON_and_binary(self):
        for binary_in, binary_out in ((True, True), (True, False), (False, True), (False, False)):
            outputs = [triton.InferRequestedOutput(name, binary_data=binary_out)
                       for name in ("token_count", "embeddings")]
            answer = self._client().infer("minilm", self._texts(binary_in), outputs=outputs,
                                          request_id="mine")
            equal(answer.get_response()["id"], "mine")
            same(answer.as_numpy("embeddings"), self.vectors)
            equal(answer.as_numpy("token_count").flatten().tolist(), list(map(len, self.ids)))
        same(self._client().infer("minilm", self._texts()).as_numpy("embeddings"), self.vectors)

    def attention_itself_in_JSON_and_binary(self):
        generator = np.random.default_rng(7)
        query, key, value = (generator.standard_normal((6, 2, 8)).astype("f") for _ in range(3))
        weights = np.exp(np.einsum("qhd,khd->hqk", query, key) / np.sqrt(8))
        expected = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), value)
        for binary in (True, False):
            inputs = [triton.InferInput(name, [6, 2, 8], "FP32").set_data_from_numpy(tensor, binary)
                      for name, tensor in (("query", query), ("key", key), ("value", value))]
            outputs = [triton.InferRequestedOutput("output", binary_data=binary)]
            answer = self._client().infer("castor_attention", inputs, outputs=outputs)
            same(answer.as_numpy("output"), expected)

    def errors(self):
        for model, status in (("strange", "404"), ("castor_attention", "400")):
            error = raised(InferenceServerException, self._client().infer, model, self._texts())
            equal(error.status(), status)
            assert "strange" in error.message() or "text" in error.message(), error


if __name__ == "__main__":
    main()

"""sentence-transformers' SentenceTransformer (6.x), computed by a server."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor import tensors
from castor.client import Client

_PROMPTS = {"query": "", "document": ""}  # that every model has, if only these


class SentenceTransformer:
    """A drop-in: castor.SentenceTransformer(target, model). Takes Client's keywords, or a Client.

    `batch_size`, `pool` and `chunk_size` are ignored, since the server makes the batches; so is
    `device`, with a warning. similarity() returns arrays for arrays and tensors for tensors.
    """

    def __init__(
        self,
        target: str | Client = "127.0.0.1:50051",
        model: str = "",
        *,
        truncate_dim: int | None = None,
        similarity_fn_name: str = "cosine",
        **client: Any,
    ) -> None:
        if similarity_fn_name not in ("cosine", "dot"):
            raise ValueError(f"similarity_fn_name {similarity_fn_name!r} is not cosine or dot")
        self.client = target if isinstance(target, Client) else Client(target, **client)
        self.model = model
        self.truncate_dim = truncate_dim
        self.similarity_fn_name = similarity_fn_name

    @property
    def prompts(self) -> dict[str, str]:
        return _PROMPTS | {prompt.name: prompt.text for prompt in self._info.prompts}

    @property
    def default_prompt_name(self) -> str | None:
        return self._info.default_prompt or None

    @property
    def max_seq_length(self) -> int:
        return int(self._info.max_tokens)

    def get_embedding_dimension(self) -> int:
        return int(self.truncate_dim or self._info.dimensions or self._info.hidden_size)

    get_sentence_embedding_dimension = get_embedding_dimension

    def encode(
        self,
        inputs: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: Any = None,
        chunk_size: int | None = None,
        **options: Any,
    ) -> Any:
        """An array, a tensor or a list of tensors; of one text its row. `options`: Client's."""
        if device is not None:
            warnings.warn("device is ignored: the server has its own", stacklevel=2)
        texts = inputs if isinstance(inputs, str) else list(inputs)
        if prompt_name in _PROMPTS and not self.prompts[prompt_name]:
            prompt_name = ""  # which the server knows
        everything = {
            "model": self.model,
            "prompt_name": prompt_name,
            "prompt": prompt,
            "show_progress_bar": show_progress_bar,
            **options,
        }
        if output_value != "sentence_embedding":
            everything |= {"output_value": output_value, "convert_to_tensor": True}
            return self.client.encode(texts, **everything)
        rows = self._rows(
            texts, normalize_embeddings, truncate_dim or self.truncate_dim, precision, everything
        )
        if convert_to_tensor:
            return tensors.to_torch(rows)
        if convert_to_numpy:
            return rows
        return tensors.to_torch(rows) if isinstance(texts, str) else list(tensors.to_torch(rows))

    def encode_query(self, inputs: str | Iterable[str], **options: Any) -> Any:
        """encode() with the prompt "query"."""
        return self.encode(inputs, **_with_prompt("query", options))

    def encode_document(self, inputs: str | Iterable[str], **options: Any) -> Any:
        """encode() with the prompt "document"; unlike Client's, with no other name's."""
        return self.encode(inputs, **_with_prompt("document", options))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n, m]"""
        first, second = self._unit(embeddings1), self._unit(embeddings2)
        return _like(embeddings1, first @ second.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n], of rows with rows."""
        first, second = self._unit(embeddings1), self._unit(embeddings2)
        return _like(embeddings1, (first * second).sum(-1))

    def _unit(self, rows: Any) -> NDArray[np.float32]:
        array: NDArray[np.float32] = np.atleast_2d(np.asarray(rows, np.float32))
        if self.similarity_fn_name == "dot":
            return array
        norms = np.linalg.norm(array, axis=-1, keepdims=True)
        array = array / np.maximum(norms, np.float32(1e-12))
        return array

    @property
    def _info(self) -> Any:
        return self.client.model(self.model)

    def _rows(
        self,
        texts: str | list[str],
        normalize: bool,
        dim: int | None,
        precision: str,
        options: dict[str, Any],
    ) -> NDArray[Any]:
        rows: NDArray[Any]
        if dim is None and not normalize:
            rows = self.client.encode(texts, precision=precision, **options)
            return rows
        whole = int(self._info.hidden_size)
        if normalize:
            # Where the model itself cuts rows, it does so after it has normalised them.
            options |= {"normalize_embeddings": True, "precision": precision}
            dim = min(dim or self._info.dimensions or whole, whole)
            rows = self.client.encode(texts, truncate_dim=dim, **options)
            return rows
        # The server would cut first and normalise then; the class does not normalise again.
        ranges = options.pop("ranges", None)
        rows = self.client.encode(texts, truncate_dim=whole, **options)[..., :dim]
        return rows if precision == "float32" else tensors.quantize(rows, precision, ranges)


def _with_prompt(name: str, options: dict[str, Any]) -> dict[str, Any]:
    named = options.get("prompt_name") is not None or options.get("prompt") is not None
    return options if named else {**options, "prompt_name": name}


def _like(given: Any, result: NDArray[Any]) -> Any:
    return tensors.to_torch(result) if hasattr(given, "detach") else result

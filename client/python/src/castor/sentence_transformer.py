"""sentence-transformers' SentenceTransformer (6.x), computed by a server."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor import tensors, texts
from castor.client import Client
from castor.served import Served, features, inputs_first, of_prompt


class SentenceTransformer(Served):
    """A drop-in: castor.SentenceTransformer(target, model). README.md says what it has.

    similarity() returns arrays for arrays and tensors for tensors.
    """

    __doc__ += Served.__doc__ or ""

    def __init__(
        self,
        target: str | Client = "127.0.0.1:50051",
        model: str = "",
        *,
        truncate_dim: int | None = None,
        similarity_fn_name: Any = None,
        **client: Any,
    ) -> None:
        super().__init__(target, model, **client)
        self.truncate_dim = truncate_dim
        self.similarity_fn_name = similarity_fn_name

    def get_embedding_dimension(self) -> int:
        whole = int(self._info.hidden_size)
        return min(self.truncate_dim or int(self._info.dimensions) or whole, whole)

    get_sentence_embedding_dimension = get_embedding_dimension

    @contextmanager
    def truncate_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_sentence_embeddings = truncate_embeddings

    @inputs_first
    def encode(
        self,
        inputs: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
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
        inputs = inputs if isinstance(inputs, str) else texts.as_list(inputs, "inputs")
        options |= {"device": device, "show_progress_bar": show_progress_bar}
        everything = self._options(prompt_name, prompt, options)
        if output_value is None:
            return self._features(inputs, normalize_embeddings, truncate_dim, everything)
        if output_value != "sentence_embedding":
            everything |= {"output_value": output_value, "convert_to_tensor": True}
            return self.client.encode(inputs, **everything)
        dim = truncate_dim or self.truncate_dim
        rows = self._rows(inputs, normalize_embeddings, dim, precision, everything)
        if convert_to_tensor:
            return tensors.to_torch(rows)
        if convert_to_numpy:
            return rows
        return tensors.to_torch(rows) if isinstance(inputs, str) else list(tensors.to_torch(rows))

    encode_query = of_prompt("query", encode)
    encode_document = of_prompt("document", encode)

    def _features(self, inputs: Any, normalize: bool, dim: int | None, options: Any) -> Any:
        """Of each text a dictionary of tensors, not filled up."""
        several = texts.as_list(inputs)
        cut = {k: options[k] for k in ("prompt", "prompt_name", "max_tokens") if k in options}
        rows = self._rows(several, normalize, dim or self.truncate_dim, "float32", {**options})
        tokens = self.client.encode(several, output_value="token_embeddings", **options)
        found = [
            features(each) | {"token_embeddings": of_tokens, "sentence_embedding": row}
            for row, of_tokens, each in zip(rows, tokens, self._tokens(several, **cut))
        ]
        made = [{name: tensors.to_torch(each[name]) for name in each} for each in found]
        return made[0] if isinstance(inputs, str) else made

    def _rows(
        self,
        inputs: Any,
        normalize: bool,
        dim: int | None,
        precision: str,
        options: dict[str, Any],
    ) -> NDArray[Any]:
        rows: NDArray[Any]
        encode = functools.partial(self.client.encode, inputs)
        if dim is None and not normalize:
            rows = encode(precision=precision, **options)
            return rows
        # Where the model itself cuts rows, it does so after it has normalised them. Where the
        # server cuts and normalises, it cuts first; the class does not normalise again.
        ranges = options.pop("ranges", None)
        if dim is None:
            rows = encode(**options)
        else:
            rows = encode(truncate_dim=int(self._info.hidden_size), **options)[..., :dim]
        if normalize:
            norms = np.linalg.norm(rows, axis=-1, keepdims=True)
            rows = rows / np.maximum(norms, np.float32(1e-12))
        return rows if precision == "float32" else tensors.quantize(rows, precision, ranges)

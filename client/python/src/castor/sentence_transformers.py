"""sentence-transformers' classes (6.x), computed by a server. README.md says what they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor import requests, tensors, texts
from castor.served import Served, features, of_prompt


class SentenceTransformer(Served):
    """A drop-in: castor.SentenceTransformer(target, model).

    similarity() returns arrays for arrays and tensors for tensors. Takes Client's keywords, or a
    Client as target. `batch_size`, `pool` and `chunk_size` are ignored, since the server makes the
    batches; so is `device`, with a warning.
    """

    def __init__(self, *target: Any, truncate_dim: int | None = None, **options: Any) -> None:
        super().__init__(*target, **options)
        self.truncate_dim = truncate_dim

    def get_embedding_dimension(self) -> int:
        info = self._info
        whole = int(info.hidden_size)
        return min(self.truncate_dim or int(info.dimensions) or whole, whole)

    get_sentence_embedding_dimension = get_embedding_dimension

    @contextmanager
    def truncate_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_sentence_embeddings = truncate_embeddings

    def encode(
        self,
        inputs: str | Iterable[str] | None = None,
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
        """An array, a tensor or a list of tensors; for one text its row. `options`: Client's."""
        inputs = options.pop("sentences", inputs)
        one, several = isinstance(inputs, str), texts.as_list(inputs, "inputs")
        options |= {"device": device, "show_progress_bar": show_progress_bar}
        everything = self._options(prompt_name, prompt, options)
        dim = truncate_dim or self.truncate_dim
        if output_value is None:
            found = self._features(several, normalize_embeddings, dim, everything)
        elif output_value != "sentence_embedding":
            everything |= {"output_value": output_value, "convert_to_tensor": True}
            found = self.client.encode(several, **everything)
        else:
            rows = self._rows(several, normalize_embeddings, dim, precision, everything)
            found = rows if convert_to_numpy and not convert_to_tensor else tensors.to_torch(rows)
            found = found if convert_to_numpy or convert_to_tensor else [*found]
        return found[0] if one else found

    encode_query = of_prompt("query")
    encode_document = of_prompt("document")

    def _features(self, inputs: Any, normalize: bool, dim: int | None, options: Any) -> Any:
        """A dictionary of tensors for each text, without padding."""
        cut = {k: options[k] for k in ("prompt", "prompt_name", "max_tokens") if k in options}
        rows = tensors.to_torch(self._rows(inputs, normalize, dim, "float32", {**options}))
        options |= {"output_value": "token_embeddings", "convert_to_tensor": True}
        made = [features(each, tensors.to_torch) for each in self._tokens(inputs, **cut)]
        for each, row, of_tokens in zip(made, rows, self.client.encode(inputs, **options)):
            each |= {"sentence_embedding": row, "token_embeddings": of_tokens}
        return made

    def _rows(
        self, inputs: Any, normalize: bool, dim: int | None, precision: str, options: dict[str, Any]
    ) -> NDArray[Any]:
        rows: NDArray[Any]
        if dim is None and not normalize:
            rows = self.client.encode(inputs, precision=precision, **options)
            return rows
        # The class cuts rows that the model has normalised, and normalises again only if asked. The
        # server cuts first: so ask it for whole rows, and cut here.
        ranges = options.pop("ranges", None)
        whole = None if dim is None else int(self._info.hidden_size)
        rows = self.client.encode(inputs, truncate_dim=whole, **options)[..., :dim]
        if normalize:
            norms = np.linalg.norm(rows, axis=-1, keepdims=True)
            rows = rows / np.maximum(norms, np.float32(1e-12))
        return rows if precision == "float32" else tensors.quantize(rows, precision, ranges)


class CrossEncoder(Served):
    """A drop-in: castor.CrossEncoder(target, model).

    By default scores are the model's own activation's with one label, and logits with several.
    """

    def __init__(
        self, *target: Any, activation_fn: Any = None, max_length: int | None = None, **options: Any
    ) -> None:
        super().__init__(*target, **options)
        self.activation_fn, self.max_seq_length = activation_fn, max_length

    @property
    def num_labels(self) -> int:
        return len(self._info.labels)

    def predict(
        self,
        inputs: Any = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Any = None,
        apply_softmax: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        **options: Any,
    ) -> Any:
        """Scores of pairs; for one pair its score. A flat list is one pair."""
        inputs = options.pop("sentences", inputs)
        if not isinstance(inputs, str):
            inputs = texts.as_list(inputs, "inputs")
            inputs = tuple(inputs) if inputs and isinstance(inputs[0], str) else inputs
        options["show_progress_bar"] = show_progress_bar
        everything = self._options(prompt_name, prompt, options)
        activation_fn = activation_fn or self.activation_fn
        everything |= {"activation_fn": activation_fn, "apply_softmax": bool(apply_softmax)}
        everything["logits"] = activation_fn is None and self.num_labels != 1
        rows = self.client.predict(inputs, **everything)
        if convert_to_numpy and not convert_to_tensor:
            return rows
        import torch

        tensor = torch.as_tensor(rows)
        return tensor if convert_to_tensor or isinstance(inputs, (str, tuple)) else [*tensor]

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *args: Any,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents with their scores, best first. Further arguments are predict()'s."""
        documents = texts.as_list(documents, "documents")
        if self.num_labels != 1:
            raise ValueError("rank() is for models with one label: see predict()")
        scores = self.predict([(query, each) for each in documents], *args, **options).tolist()
        order = sorted(enumerate(scores), key=lambda each: -each[1])[:top_k]
        return requests.ranked(documents, order, return_documents)


class SparseEncoder(Served):
    """A drop-in: castor.SparseEncoder(target, model), whose rows are torch's sparse tensors."""

    _similarity = "dot"

    def __init__(self, *target: Any, max_active_dims: int | None = None, **options: Any) -> None:
        super().__init__(*target, **options)
        self.max_active_dims = max_active_dims

    def get_embedding_dimension(self) -> int:
        return int(self._info.vocabulary_size)

    get_sentence_embedding_dimension = get_embedding_dimension

    def encode(
        self,
        inputs: str | Iterable[str] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_tensor: bool = True,
        convert_to_sparse_tensor: bool = True,
        save_to_cpu: bool = False,
        device: Any = None,
        max_active_dims: int | None = None,
        **options: Any,
    ) -> Any:
        """A sparse tensor, [texts, vocabulary], or a list of rows; for one text its row."""
        import torch

        inputs = options.pop("sentences", inputs)
        options |= {"device": device, "show_progress_bar": show_progress_bar}
        sparse = self.client.encode_sparse(inputs, **self._options(prompt_name, prompt, options))
        most = self.max_active_dims if max_active_dims is None else max_active_dims
        lengths, kept = np.diff(sparse.indptr), np.arange(len(sparse.values))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        if most is not None:  # keep the greatest values
            rank = kept - np.repeat(sparse.indptr[:-1], lengths)
            kept = np.sort(np.lexsort((-sparse.values, rows))[rank < most])
        at = torch.from_numpy(np.stack([rows, sparse.indices])[:, kept])
        values = torch.from_numpy(sparse.values[kept])
        made = torch.sparse_coo_tensor(at, values, sparse.shape, check_invariants=True).coalesce()
        made = made if convert_to_sparse_tensor else made.to_dense()
        if isinstance(inputs, str):
            return made[0]
        return made if convert_to_tensor else [*made]

    encode_query = of_prompt("query")
    encode_document = of_prompt("document")

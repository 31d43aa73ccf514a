"""sentence-transformers' CrossEncoder and SparseEncoder (6.x), computed by a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from castor import texts
from castor.client import Client
from castor.requests import Ranked
from castor.served import Served, inputs_first, of_prompt


class CrossEncoder(Served):
    """A drop-in: castor.CrossEncoder(target, model). README.md says what it has.

    By default scores are the model's own activation's with one label, and logits with several.
    """

    def __init__(
        self,
        target: str | Client = "127.0.0.1:50051",
        model: str = "",
        *,
        activation_fn: Any = None,
        max_length: int | None = None,
        **client: Any,
    ) -> None:
        super().__init__(target, model, **client)
        self.activation_fn, self.max_seq_length = activation_fn, max_length

    @property
    def num_labels(self) -> int:
        return len(self._info.labels)

    @inputs_first
    def predict(
        self,
        inputs: Any,
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
        """Scores of pairs; of one pair its own. A flat list is one pair."""
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

        rows = torch.as_tensor(rows)
        return rows if convert_to_tensor or isinstance(inputs, (str, tuple)) else list(rows)

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *args: Any,
        **options: Any,
    ) -> list[Ranked]:
        """The documents with their scores, best first. Further arguments are predict()'s."""
        documents = texts.as_list(documents, "documents")
        if self.num_labels != 1:
            raise ValueError("rank() is for models with one label: see predict()")
        scores = self.predict([(query, each) for each in documents], *args, **options).tolist()
        order = sorted(range(len(scores)), key=lambda n: -scores[n])[:top_k]
        ranked: list[Ranked] = [{"corpus_id": n, "score": scores[n]} for n in order]
        if return_documents:
            for each in ranked:
                each["text"] = documents[each["corpus_id"]]
        return ranked


class SparseEncoder(Served):
    """A drop-in: castor.SparseEncoder(target, model), whose rows are torch's sparse tensors."""

    _similarity = "dot"

    def __init__(
        self,
        target: str | Client = "127.0.0.1:50051",
        model: str = "",
        *,
        max_active_dims: int | None = None,
        similarity_fn_name: Any = None,
        **client: Any,
    ) -> None:
        super().__init__(target, model, **client)
        self.max_active_dims, self.similarity_fn_name = max_active_dims, similarity_fn_name

    def get_embedding_dimension(self) -> int:
        return int(self._info.vocabulary_size)

    get_sentence_embedding_dimension = get_embedding_dimension

    @inputs_first
    def encode(
        self,
        inputs: str | Iterable[str],
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
        """A sparse tensor, [texts, vocabulary], or a list of them; of one text its row."""
        import torch

        options |= {"device": device, "show_progress_bar": show_progress_bar}
        sparse = self.client.encode_sparse(inputs, **self._options(prompt_name, prompt, options))
        most = self.max_active_dims if max_active_dims is None else max_active_dims
        lengths = np.diff(sparse.indptr)
        at = np.stack([np.repeat(np.arange(len(lengths)), lengths), sparse.indices])
        values = sparse.values
        if most is not None:  # those of the greatest values
            order = np.lexsort((-values, at[0]))
            rank = np.arange(len(values)) - np.repeat(sparse.indptr[:-1], lengths)
            kept = np.sort(order[rank < most])
            at, values = at[:, kept], values[kept]
        made = torch.sparse_coo_tensor(
            torch.from_numpy(at), torch.from_numpy(values), sparse.shape, check_invariants=True
        ).coalesce()
        made = made if convert_to_sparse_tensor else made.to_dense()
        if isinstance(inputs, str):
            return made[0]
        return made if convert_to_tensor else list(made)

    encode_query = of_prompt("query", encode)
    encode_document = of_prompt("document", encode)

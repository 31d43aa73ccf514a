"""The common part of the drop-ins for sentence-transformers' classes (6.x)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from castor import tensors, texts
from castor.client import Client

_PROMPTS = {"query": "", "document": ""}  # every model has these
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def of_prompt(name: str) -> Any:
    """The method that is encode() with the prompt of this name; unlike Client's, with no other."""

    # The parameters' names and order are sentence-transformers'.
    def method(self, inputs=None, prompt_name=None, prompt=None, *args, **options):  # type: ignore
        prompt_name = name if prompt_name is None and prompt is None else prompt_name
        if name in self._info.tasks:  # a Router's routes, which another prompt would not name
            options.setdefault("task", name)
        return self.encode(inputs, prompt_name, prompt, *args, **options)

    return method


class Served:
    """A model of a server. Takes Client's keywords, or a Client."""

    _similarity = "cosine"  # unless the caller or the model says otherwise

    def __init__(
        self,
        target: str | Client = "127.0.0.1:50051",
        model: str = "",
        *,
        similarity_fn_name: Any = None,
        **client: Any,
    ) -> None:
        self.client = target if isinstance(target, Client) else Client(target, **client)
        self.model = model
        self._max_tokens: int | None = None
        self.similarity_fn_name = similarity_fn_name

    @property
    def _info(self) -> Any:
        return self.client.model(self.model)

    @property
    def prompts(self) -> dict[str, str]:
        return _PROMPTS | {prompt.name: prompt.text for prompt in self._info.prompts}

    @property
    def default_prompt_name(self) -> str | None:
        return self._info.default_prompt or None

    @property
    def max_seq_length(self) -> int:
        return self._max_tokens or int(self._info.max_tokens)

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self._max_tokens = value

    def get_max_seq_length(self) -> int:
        return self.max_seq_length

    @property
    def device(self) -> Any:
        """The device of returned tensors: torch's CPU."""
        import torch

        return torch.device("cpu")

    def to(self, *_: Any, **__: Any) -> Any:
        """Does nothing, like eval() and half(): the server has its own device."""
        return self

    cpu = cuda = eval = half = to

    @property
    def similarity_fn_name(self) -> str:
        if self._similarity_fn_name:
            return self._similarity_fn_name
        name = str(self._info.similarity_fn_name)
        return name if name in _SIMILARITIES else self._similarity

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Any) -> None:
        name = getattr(value, "value", value)  # an enumeration's value
        if name is not None and name not in _SIMILARITIES:
            known = ", ".join(_SIMILARITIES)
            raise ValueError(f"similarity_fn_name {name!r} is not one of {known}")
        self._similarity_fn_name: str | None = name

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n, m]; a tensor if one of them is, with its gradients."""
        return self._compare(embeddings1, embeddings2, pairwise=False)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n], of rows with rows."""
        return self._compare(embeddings1, embeddings2, pairwise=True)

    def _compare(self, first: Any, second: Any, pairwise: bool) -> Any:
        name = self.similarity_fn_name
        tensor = _is_tensor(first) or _is_tensor(second)
        a, b = (_floats(each, tensor) for each in (first, second))
        if not pairwise:
            a, b = a[None] if a.ndim == 1 else a, b[None] if b.ndim == 1 else b
        if name == "cosine":
            a, b = (x / ((x * x).sum(-1)[..., None] ** 0.5).clip(min=1e-12) for x in (a, b))
        if name in ("cosine", "dot"):
            return (a * b).sum(-1) if pairwise else a @ b.T
        if not pairwise:
            a, b = a[:, None], b[None]
        return -(abs(a - b).sum(-1) if name == "manhattan" else ((a - b) ** 2).sum(-1) ** 0.5)

    def tokenize(self, texts: Iterable[str], **options: Any) -> dict[str, Any]:
        """Tensors of [texts, tokens], padded with zeros."""
        import torch

        made = [features(each, tensors.to_torch) for each in self._tokens(texts, **options)]
        pad = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        return {name: pad([each[name] for each in made]) for name in (made[0] if made else ())}

    preprocess = tokenize

    def _tokens(self, inputs: Any, **options: Any) -> Any:
        known: Any = {"truncate": True, "max_tokens": self._max_tokens or 0}
        if options.get("prompt") is None:
            known["prompt_name"] = ""
        known |= options
        return self.client.tokenize(texts.as_list(inputs), model=self.model, **known)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self)

    def _options(self, prompt_name: str | None, prompt: str | None, given: Any) -> dict[str, Any]:
        """Keywords for Client. `prompt` overrides `prompt_name`."""
        if given.pop("device", None) is not None:
            warnings.warn("device is ignored: the server has its own", stacklevel=3)
        for name in ("pool", "chunk_size"):
            given.pop(name, None)
        if self._max_tokens:  # the caller asked to cut longer texts
            given = {"max_tokens": self._max_tokens, "truncate": True, **given}
        if given.get("task") and prompt_name is None:  # brings no prompt there
            prompt_name = self.default_prompt_name or ""
        prompt_name = prompt_name if prompt is None else None
        return {"model": self.model, "prompt_name": prompt_name, "prompt": prompt, **given}


def _is_tensor(rows: Any) -> bool:
    """Whether rows are a tensor, or a list of them."""
    return hasattr(rows[0] if isinstance(rows, (list, tuple)) and rows else rows, "detach")


def _floats(rows: Any, as_tensor: bool) -> Any:
    if not as_tensor:
        return np.asarray(tensors.unmasked("embeddings", rows), np.float32)
    import torch

    if _is_tensor(rows):
        rows = torch.stack([*rows]) if isinstance(rows, (list, tuple)) else rows
    else:
        rows = torch.as_tensor(np.asarray(rows))
    rows = rows.to_dense() if rows.is_sparse else rows
    return rows if rows.dtype == torch.float64 else rows.float()


def features(tokens: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """One text's inputs, as transformers names them."""
    mask = np.ones_like(tokens.ids)
    arrays = {"input_ids": tokens.ids, "token_type_ids": tokens.type_ids, "attention_mask": mask}
    return {name: convert(array) for name, array in arrays.items()}


class Tokenizer:
    """The server's, with those methods of transformers' that programs call most. Cuts nothing."""

    def __init__(self, served: Served) -> None:
        self._served = served

    @property
    def model_max_length(self) -> int:
        return self._served.max_seq_length

    def _tokens(self, text: Any, **options: Any) -> Any:
        return self._served._tokens(text, **{"truncate": False, **options})

    def __call__(self, text: str | Iterable[str], **_: Any) -> dict[str, Any]:
        """Lists without padding."""
        made = [features(each, np.ndarray.tolist) for each in self._tokens(text)]
        if isinstance(text, str):
            return made[0]
        return {name: [each[name] for each in made] for name in (made[0] if made else ())}

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        return self._tokens(text, add_special_tokens=add_special_tokens)[0].ids.tolist()

    def tokenize(self, text: str) -> Any:
        return self._tokens(text, add_special_tokens=False, return_tokens=True)[0].tokens

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        options: Any = {"model": self._served.model, "skip_special_tokens": skip_special_tokens}
        return self._served.client.detokenize([[*map(int, token_ids)]], **options)[0]

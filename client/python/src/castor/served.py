"""What the drop-ins for sentence-transformers' classes (6.x) have in common."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from castor import tensors, texts
from castor.client import Client

_PROMPTS = {"query": "", "document": ""}  # that every model has, if only these
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def inputs_first(method: Callable[..., Any]) -> Any:
    """The method with its inputs also by the name that they had before, `sentences`."""

    @functools.wraps(method)
    def renamed(self: Any, *args: Any, **options: Any) -> Any:
        if "sentences" in options:
            options["inputs"] = options.pop("sentences")
        return method(self, *args, **options)

    return renamed


def of_prompt(name: str, encode: Any) -> Any:
    """encode() with the prompt of this name. Unlike Client's, of no other."""

    @inputs_first
    @functools.wraps(encode)
    def method(
        self: Any,
        inputs: Any,
        prompt_name: str | None = None,
        prompt: str | None = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        prompt_name = name if prompt_name is None and prompt is None else prompt_name
        return self.encode(inputs, prompt_name, prompt, *args, **options)

    return method


class Served:
    """What the classes have in common. Takes Client's keywords, or a Client.

    `batch_size`, `pool` and `chunk_size` are ignored, since the server makes the batches; so is
    `device`, with a warning.
    """

    _similarity = "cosine"  # where neither the caller nor the model says

    def __init__(
        self, target: str | Client = "127.0.0.1:50051", model: str = "", **client: Any
    ) -> None:
        self.client = target if isinstance(target, Client) else Client(target, **client)
        self.model = model
        self._max_tokens: int | None = None
        self._similarity_fn_name: str | None = None

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
        """Where tensors are: torch's CPU."""
        import torch

        return torch.device("cpu")

    def to(self, *_: Any, **__: Any) -> Any:
        """Nothing moves: the server has its own device. Nor does eval() or half() change it."""
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
        name = getattr(value, "value", value)  # of an enumeration
        if name is not None and name not in _SIMILARITIES:
            raise ValueError(
                f"similarity_fn_name {name!r} is not one of {', '.join(_SIMILARITIES)}"
            )
        self._similarity_fn_name = name

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n, m]; a tensor if one of them is, with its gradients."""
        return self._compare(embeddings1, embeddings2, pairwise=False)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """[n], of rows with rows."""
        return self._compare(embeddings1, embeddings2, pairwise=True)

    def _compare(self, first: Any, second: Any, pairwise: bool) -> Any:
        name, tensor = self.similarity_fn_name, False
        for each in (first, second):
            one = each[0] if isinstance(each, (list, tuple)) and len(each) else each
            tensor |= hasattr(one, "detach")
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
        """Tensors of [texts, tokens], filled up with zeros."""
        import torch

        made = [features(each) for each in self._tokens(texts, **options)]
        pad = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        names = list(made[0]) if made else []
        return {name: pad([torch.from_numpy(each[name]) for each in made]) for name in names}

    preprocess = tokenize

    def _tokens(self, inputs: Any, **options: Any) -> Any:
        known = {
            "truncate": True,
            "max_tokens": self._max_tokens or 0,
            "prompt_name": "",
            **options,
        }
        if known.get("prompt") is not None:
            del known["prompt_name"]
        return self.client.tokenize(texts.as_list(inputs), model=self.model, **known)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self)

    def _options(self, prompt_name: str | None, prompt: str | None, given: Any) -> dict[str, Any]:
        """Client's keywords. A prompt counts before its name."""
        if given.pop("device", None) is not None:
            warnings.warn("device is ignored: the server has its own", stacklevel=4)
        for name in ("pool", "chunk_size", "batch_size"):
            given.pop(name, None)
        if self._max_tokens:  # what is longer is cut, as its caller said
            given = {"max_tokens": self._max_tokens, "truncate": True, **given}
        prompt_name = prompt_name if prompt is None else None
        return {"model": self.model, "prompt_name": prompt_name, "prompt": prompt, **given}


def _floats(rows: Any, as_tensor: bool) -> Any:
    if not as_tensor:
        return np.asarray(tensors.unmasked("embeddings", rows), np.float32)
    import torch

    if isinstance(rows, (list, tuple)) and hasattr(rows[0], "detach"):
        rows = torch.stack(list(rows))
    rows = torch.as_tensor(rows) if hasattr(rows, "detach") else torch.as_tensor(np.asarray(rows))
    rows = rows.to_dense() if rows.is_sparse else rows
    return rows if rows.dtype == torch.float64 else rows.float()


def features(tokens: Any) -> dict[str, Any]:
    """As transformers names them."""
    mask = np.ones(len(tokens.ids), np.int64)
    return {"input_ids": tokens.ids, "token_type_ids": tokens.type_ids, "attention_mask": mask}


class Tokenizer:
    """The server's, with those methods of transformers' that programs call most."""

    def __init__(self, served: Served) -> None:
        self._served = served

    @property
    def model_max_length(self) -> int:
        return self._served.max_seq_length

    def __call__(self, text: str | Iterable[str], **_: Any) -> dict[str, Any]:
        """Lists, not filled up and not cut."""
        made = [features(each) for each in self._served._tokens(text, truncate=False)]
        lists = {name: [each[name].tolist() for each in made] for name in (made[0] if made else [])}
        return {name: each[0] for name, each in lists.items()} if isinstance(text, str) else lists

    def _cut(self, text: str, special: bool) -> Any:
        options = {"truncate": False, "add_special_tokens": special, "return_tokens": True}
        return self._served._tokens(text, **options)[0]

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        return self._cut(text, add_special_tokens).ids.tolist()

    def tokenize(self, text: str) -> Any:
        return self._cut(text, False).tokens

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> str:
        options: Any = {"model": self._served.model, "skip_special_tokens": skip_special_tokens}
        return str(self._served.client.detokenize([[*map(int, token_ids)]], **options)[0])

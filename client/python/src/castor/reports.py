"""Reports of how an answer was computed, and the types of answers with several parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor import fields, kernels
from castor.v1 import kernel_pb2
from castor.v1.report_pb2 import BatchReport, Fidelity, MemoryReport, RejectedKernel, Timing


@dataclass(frozen=True)
class Report:
    """How one request was computed: see report.proto."""

    request_id: str
    model: str  # empty for attention
    kernel_name: str  # "improved_clustered"
    kernel: kernels.Kernel | None  # with every default resolved
    device: str
    backend: str
    predicted_us: float
    measured_us: float
    rejected: tuple[RejectedKernel, ...]  # by the automatic choice: their errors were too large
    timing: Timing
    batch: BatchReport
    memory: MemoryReport
    fidelity: Fidelity | None = None  # the measured error of an approximate kernel


@dataclass(frozen=True)
class Encoded:
    """Rows, and how each text was tokenized and cut."""

    rows: NDArray[Any]
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    reports: tuple[Report, ...]  # one for each request that the texts were sent in


@dataclass(frozen=True)
class Spans:
    """One row for each range, in order."""

    rows: NDArray[np.float32]
    tokens: list[tuple[int, int]]  # the pooled ones; none for whitespace alone
    truncated: list[bool]  # whether tokens of the range are missing


@dataclass(frozen=True)
class Sparse:
    """Rows in compressed form: scipy.sparse.csr_matrix((values, indices, indptr), shape)."""

    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    indptr: NDArray[np.int64]
    width: int  # columns: the vocabulary's size

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width


@dataclass(frozen=True)
class Tokens:
    """One text as its model's tokenizer cuts it, an entry for each token."""

    ids: NDArray[np.int64]
    type_ids: NDArray[np.int64]
    special: NDArray[np.bool_]  # added by the tokenizer, such as [CLS]
    pair: NDArray[np.bool_]  # belongs to the second text of a pair
    offsets: NDArray[np.int64]  # [tokens, 2]: begin and end in characters, the prompt included
    tokens: list[str]  # the vocabulary's entries, with return_tokens
    truncated: bool


@dataclass(frozen=True)
class Attention:
    output: NDArray[Any]
    log_sum_exp: NDArray[np.float32] | None
    report: Report


def split(rows: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Views of each text's rows, from the number of rows of each."""
    return np.split(rows, np.cumsum(lengths)[:-1]) if len(lengths) else []


def read_tokens(answer: Any) -> list[Tokens]:
    """The texts of a TokenizeResponse."""
    columns: list[NDArray[Any]] = [
        np.array(answer.ids, np.int64),
        np.array(answer.type_ids, np.int64),
        np.array(answer.special, np.bool_),
        np.array(answer.pair, np.bool_),
        np.array([answer.character_begins, answer.character_ends], np.int64).T,
    ]
    parts = zip(*(split(column, answer.lengths) for column in columns))
    words = [each.tolist() for each in split(np.array(answer.tokens, object), answer.lengths)]
    return [Tokens(*part, *rest) for part, *rest in zip(parts, words, answer.truncated)]


def entities(
    text: str,
    scores: NDArray[Any],
    tokens: Tokens,
    labels: Sequence[str],
    strategy: str,
    ignored: Sequence[str],
) -> list[dict[str, Any]]:
    """One text's entities, grouped as transformers does; `word` is a slice of the text."""
    found: list[dict[str, Any]] = []
    last = ""
    for index, (row, (start, end)) in enumerate(zip(scores, tokens.offsets.tolist())):
        if tokens.special[index]:
            continue
        label = labels[int(row.argmax())]
        begins, tag = label.startswith("B-"), label[2:] if label[:2] in ("B-", "I-") else label
        if strategy == "none":
            found.append({"entity": label, "index": index})
        elif not found or begins or tag != last:
            found.append({"entity_group": tag})
        last, span = tag, found[-1]
        span.setdefault("scores", []).append(float(row.max()))
        span["start"], span["end"] = span.get("start", start), end
    for span in found:
        span["score"] = float(np.mean(span.pop("scores")))
        span["word"] = text[span["start"] : span["end"]]
    return [each for each in found if (each.get("entity") or each["entity_group"]) not in ignored]


def _own(part: Any) -> Any:
    """A copy: the part itself would keep the whole answer alive. deepcopy() fails in protobuf 4."""
    return type(part).FromString(part.SerializeToString())


def read(answer: Any) -> Report:
    """The report of an EncodeResponse or an AttendResponse."""
    kernel, known = answer.kernel, {field.name for field, _ in answer.ListFields()}
    return Report(
        request_id=answer.request_id,
        model=getattr(answer, "model", ""),
        kernel_name=fields.name_of(kernel_pb2.KernelName.DESCRIPTOR, kernel.name),
        kernel=kernels.read(kernel),
        device=kernel.device,
        backend=kernel.backend,
        predicted_us=kernel.predicted_us,
        measured_us=kernel.measured_us,
        rejected=tuple(_own(each) for each in kernel.rejected),
        timing=_own(answer.timing),
        batch=_own(answer.batch),
        memory=_own(answer.memory),
        fidelity=_own(answer.fidelity) if "fidelity" in known else None,
    )

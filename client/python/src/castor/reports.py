"""What every answer says about how it was computed; and the answers that have several parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from castor import kernels

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """Microseconds; see report.proto."""

    decode_us: float
    queue_us: float
    copy_in_us: float
    compute_us: float
    copy_out_us: float
    total_us: float


@dataclass(frozen=True)
class Batch:
    requests: int
    tokens: int
    padded_tokens: int


@dataclass(frozen=True)
class Memory:
    workspace_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Fidelity:
    """The measured error of an approximate kernel."""

    rows: int
    relative_error: float
    probe_us: float


@dataclass(frozen=True)
class Rejected:
    """A kernel that the automatic choice ran first, and whose error was too large."""

    kernel: kernels.Kernel | None
    measured_us: float
    relative_error: float


@dataclass(frozen=True)
class Report:
    request_id: str
    model: str  # of encoders
    kernel_name: str  # "improved_clustered"
    kernel: kernels.Kernel | None  # with every default resolved
    device: str
    backend: str
    predicted_us: float
    measured_us: float
    rejected: tuple[Rejected, ...]
    timing: Timing
    batch: Batch
    memory: Memory
    fidelity: Fidelity | None = None


@dataclass(frozen=True)
class Encoded:
    """Rows, and what became of each text on the way."""

    rows: NDArray[Any]
    token_counts: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    reports: tuple[Report, ...]  # one for each request that the texts were sent in


@dataclass(frozen=True)
class Spans:
    """One row for each range, in order."""

    rows: NDArray[np.float32]
    tokens: list[tuple[int, int]]  # that were pooled; none of what is only whitespace
    truncated: list[bool]  # whether tokens of the range are missing


@dataclass(frozen=True)
class Sparse:
    """Rows in compressed form: scipy.sparse.csr_matrix((values, indices, indptr), shape)."""

    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    indptr: NDArray[np.int64]
    width: int  # of the vocabulary: the rows' columns

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width


@dataclass(frozen=True)
class Tokens:
    """One text as its model's tokenizer cuts it, an entry for each token."""

    ids: NDArray[np.int64]
    type_ids: NDArray[np.int64]
    special: NDArray[np.bool_]  # the tokenizer added it: it stands for no text
    pair: NDArray[np.bool_]  # it is of the second text of a pair
    offsets: NDArray[np.int64]  # [tokens, 2]: begin and end in characters, the prompt included
    tokens: list[str]  # the vocabulary's entries, with return_tokens
    truncated: bool


@dataclass(frozen=True)
class Attention:
    output: NDArray[Any]
    log_sum_exp: NDArray[np.float32] | None
    report: Report


def _same(kind: type[T], message: Any) -> T:
    """A dataclass whose fields are the message's."""
    return kind(**{field.name: getattr(message, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def read_tokens(answer: Any) -> list[Tokens]:
    """Of a TokenizeResponse."""
    ends = np.cumsum(answer.lengths)
    offsets = np.array([answer.character_begins, answer.character_ends], np.int64).T
    columns: list[NDArray[Any]] = [
        np.array(answer.ids, np.int64),
        np.array(answer.type_ids, np.int64),
        np.array(answer.special, np.bool_),
        np.array(answer.pair, np.bool_),
        offsets,
    ]
    parts = zip(*(np.split(column, ends[:-1]) for column in columns))
    begins = ends - np.array(answer.lengths, np.int64)
    words = [list(answer.tokens[begin:end]) for begin, end in zip(begins, ends)]
    return [Tokens(*part, *rest) for part, *rest in zip(parts, words, answer.truncated)]


def entities(
    text: str,
    scores: NDArray[Any],
    tokens: Tokens,
    labels: Sequence[str],
    strategy: str,
    ignored: Sequence[str],
) -> list[dict[str, Any]]:
    """Of one text, as transformers groups tokens; but `word` is the text's own."""
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


def read(answer: Any) -> Report:
    """Of an EncodeResponse or an AttendResponse."""
    kernel = answer.kernel
    has_fidelity = "fidelity" in answer.DESCRIPTOR.fields_by_name and answer.HasField("fidelity")
    return Report(
        request_id=answer.request_id,
        model=getattr(answer, "model", ""),
        kernel_name=kernels.name_of(kernel.name),
        kernel=kernels.read(kernel),
        device=kernel.device,
        backend=kernel.backend,
        predicted_us=kernel.predicted_us,
        measured_us=kernel.measured_us,
        rejected=tuple(
            Rejected(kernels.read(each), each.measured_us, each.relative_error)
            for each in kernel.rejected
        ),
        timing=_same(Timing, answer.timing),
        batch=_same(Batch, answer.batch),
        memory=_same(Memory, answer.memory),
        fidelity=_same(Fidelity, answer.fidelity) if has_fidelity else None,
    )

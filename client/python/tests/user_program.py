"""What a type-checker should make of a user's program; not run."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import castor


def main() -> None:
    with castor.Client("dns:///castor:50051", tls=True, token_file="token", timeout=10) as client:
        rows: NDArray[Any] = client.encode(["a", "b"], normalize_embeddings=True, truncate_dim=64)
        stream: Iterator[NDArray[Any]] = client.encode_stream(iter(["a"]), in_flight=4)
        scores: NDArray[np.float32] = client.predict([("a", "b")])
        best: int = client.rank("a", ["b", "c"], top_k=1)[0]["corpus_id"]
        query = np.zeros((5, 2, 4), np.float32)
        answer: castor.Attention = client.attend(
            query, query, query, lengths=[3, 2], kernel=castor.ImprovedClustered(clusters=200)
        )
        fidelity: castor.Fidelity | None = answer.report.fidelity
        try:
            client.encode("a", kernel="cast")
        except castor.QueueFullError as error:
            wait: float | None = error.retry_after
            print(wait, rows, stream, scores, best, fidelity)
        client.encode("a", truncate_dimm=64)  # type: ignore[call-arg]
        client.encode(7)  # type: ignore[arg-type]


async def later(client: castor.AsyncClient) -> NDArray[Any]:
    async for each in client.encode_stream(["a"]):
        print(each.shape)
    row: NDArray[Any] = await client.encode_query("a", model="minilm")
    return row

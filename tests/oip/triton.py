#!/usr/bin/env python3
"""What Triton's own Python client, unmodified, is promised by a server, row by row.

    triton.py --server build/server/castor-server
"""

import argparse
import asyncio
import queue
import uuid

import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

import server

ATTENTION = "castor_attention"
SHAPE = (6, 2, 8)


def draw() -> list:
    generator = np.random.default_rng(7)
    return [generator.standard_normal(SHAPE).astype(np.float32) for _ in range(3)]


def tensors(arrays, datatype="FP32") -> list:
    inputs = []
    for name, array in zip(("query", "key", "value"), arrays):
        inputs.append(triton.InferInput(name, list(array.shape), datatype))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def texts(*values: str):
    array = np.array([[value.encode()] for value in values], dtype=np.object_)
    tensor = triton.InferInput("text", [len(values), 1], "BYTES")
    tensor.set_data_from_numpy(array)
    return [tensor]


def exact(query, key, value) -> np.ndarray:
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), value)


def refused(call, status: str, text: str = "") -> None:
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{status}", f"{error.status()}: {error}"
        assert text in str(error), str(error)
        return
    raise AssertionError(f"not refused with {status}")


def health(client, _):
    """live, ready, and whether a model is"""
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(ATTENTION) and client.is_model_ready(ATTENTION, "1")
    assert not client.is_model_ready("strange")


def metadata(client, _):
    """server and models describe themselves, configuration and metadata alike"""
    about = client.get_server_metadata()
    assert about.name == "castor"
    assert {"model_configuration", "binary_tensor_data", "parameters", "statistics",
            "system_shared_memory"} <= set(about.extensions)
    index = client.get_model_repository_index()
    assert {model.state for model in index.models} == {"READY"}
    for model in index.models:
        described = client.get_model_metadata(model.name)
        config = client.get_model_config(model.name).config
        assert described.versions == ["1"]
        assert [t.name for t in described.inputs] == [t.name for t in config.input]
        assert [t.name for t in described.outputs] == [t.name for t in config.output]
        # With no batch dimension of the server's own, both have the same one.
        assert config.max_batch_size == 0
        for ours, theirs in zip(described.inputs, config.input):
            assert list(ours.shape) == list(theirs.dims)
    refused(lambda: client.get_model_metadata("strange"), "NOT_FOUND", "strange")
    refused(lambda: client.get_model_config(ATTENTION, "2"), "NOT_FOUND", "version 2")
    refused(lambda: client.get_model_config(ATTENTION, "-1"), "INVALID_ARGUMENT", "model_version")


def infer(client, _):
    """FP32 raw: the right answer, its id, and outputs in the order asked for"""
    arrays = draw()
    outputs = [triton.InferRequestedOutput(name) for name in ("log_sum_exp", "output")]
    answer = client.infer(ATTENTION, tensors(arrays), outputs=outputs, request_id="mine")
    assert answer.get_response().id == "mine"
    assert [t.name for t in answer.get_response().outputs] == ["log_sum_exp", "output"]
    np.testing.assert_allclose(answer.as_numpy("output"), exact(*arrays), atol=1e-5)
    assert answer.as_numpy("log_sum_exp").shape == SHAPE[:2]


def halves(client, _):
    """FP16 and BF16, which are always raw"""
    arrays = draw()
    for datatype, dtype, within in (("FP16", np.float16, 2e-2), ("BF16", ml_dtypes.bfloat16, 1e-1)):
        answer = client.infer(ATTENTION, tensors([a.astype(dtype) for a in arrays], datatype))
        got = answer.as_numpy("output").astype(np.float32)
        np.testing.assert_allclose(got, exact(*arrays), atol=within)


def parameters(client, _):
    """a kernel and its parameters; priority as uint64, timeout as int64, numbers as texts"""
    answer = client.infer(
        ATTENTION, tensors(draw()), priority=1, timeout=5_000_000,
        parameters={"attention": "clustered", "clusters": 3, "seed": "7", "softmax_scale": 0.5,
                    "check_finite": True})
    assert answer.get_response().parameters["attention"].string_param == "clustered"
    client.infer(ATTENTION, tensors(draw()), parameters={"strange": 1, "content_type": "json"})
    refused(lambda: client.infer(ATTENTION, tensors(draw()), parameters={"softmax_scale": "one"}),
            "INVALID_ARGUMENT", "softmax_scale")


def errors(client, _):
    """unknown names, datatypes and shapes"""
    refused(lambda: client.infer("strange", tensors(draw())), "NOT_FOUND", "strange")
    wrong = tensors(draw())
    wrong[1].set_shape([5, 2, 8])
    refused(lambda: client.infer(ATTENTION, wrong), "INVALID_ARGUMENT", "key")
    refused(lambda: client.infer(ATTENTION, tensors(draw())[:2]), "INVALID_ARGUMENT", "value")
    many = [triton.InferRequestedOutput("output", class_count=3)]
    refused(lambda: client.infer(ATTENTION, tensors(draw()), outputs=many), "INVALID_ARGUMENT",
            "classification")


def compression(client, _):
    """compressed messages are refused, as by all our methods: gRPC has no bound on what they become"""
    for algorithm in ("gzip", "deflate"):
        refused(lambda: client.infer(ATTENTION, tensors(draw()), compression_algorithm=algorithm),
                "UNIMPLEMENTED", algorithm)


def encoders(client, _):
    """texts in, embeddings and tokens out of one pass"""
    outputs = [triton.InferRequestedOutput(n) for n in ("embeddings", "token_embeddings", "lengths")]
    answer = client.infer("embed", texts("a cat", "two dogs"), outputs=outputs)
    assert answer.as_numpy("embeddings").shape[0] == 2
    assert answer.as_numpy("lengths").sum() == answer.as_numpy("token_embeddings").shape[0]


def statistics(client, _):
    """counts grow, and are the same for queue and the parts of computing; batches by size"""
    before = client.get_inference_statistics(ATTENTION).model_stats[0]
    client.infer(ATTENTION, tensors(draw()))
    after = client.get_inference_statistics(ATTENTION, "1").model_stats[0]
    stats = after.inference_stats
    assert after.version == "1" and after.last_inference > 0
    assert stats.queue.count > before.inference_stats.queue.count
    assert (stats.success.count == stats.queue.count == stats.compute_input.count ==
            stats.compute_infer.count == stats.compute_output.count)
    assert sum(b.compute_infer.count for b in after.batch_stats) == after.execution_count
    assert len(client.get_inference_statistics().model_stats) == 3


def asynchronous(client, _):
    """async_infer answers by callback"""
    answers = queue.Queue()
    for number in range(8):
        client.async_infer(ATTENTION, tensors(draw()), request_id=str(number),
                           callback=lambda result, error: answers.put((result, error)))
    results = [answers.get(timeout=30) for _ in range(8)]
    assert all(error is None for _, error in results)
    assert {r.get_response().id for r, _ in results} == {str(n) for n in range(8)}


def streams(client, _):
    """a stream answers everything in order before it ends, errors in their place"""
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for number in range(20):
        client.async_stream_infer(ATTENTION if number % 5 else "strange", tensors(draw()),
                                  request_id=str(number), enable_empty_final_response=True)
    client.stop_stream()
    results = [answers.get(timeout=30) for _ in range(20)]
    for number, (result, error) in enumerate(results):
        if number % 5:
            assert result.get_response().id == str(number)
            assert result.get_response().parameters["triton_final_response"].bool_param
        else:
            assert "[MODEL_NOT_FOUND]" in str(error)
    assert answers.empty()


def streams_with_codes(client, _):
    """a stream that asks for real codes ends with the first"""
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)),
                        headers={"triton_grpc_error": "true"})
    client.async_stream_infer("strange", tensors(draw()))
    _, error = answers.get(timeout=30)
    assert error.status() == "StatusCode.NOT_FOUND", error
    client.stop_stream()


def asyncio_client(_, url):
    """the client for asyncio: calls and a stream"""
    async def use():
        async with triton_aio.InferenceServerClient(url) as client:
            assert await client.is_server_ready()
            answer = await client.infer(ATTENTION, tensors(draw()))
            assert answer.as_numpy("output").shape == SHAPE

            async def requests():
                for name in (ATTENTION, "strange", ATTENTION):
                    yield {"model_name": name, "inputs": tensors(draw())}

            results = [each async for each in client.stream_infer(requests())]
            assert [error is None for _, error in results] == [True, False, True]

    asyncio.run(use())


def regions(client, _):
    """shared memory: registered with and without a slash, listed, refused, forgotten"""
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    for slash in ("", "/"):
        key = f"castor-{uuid.uuid4().hex}"
        handle = shared_memory.create_shared_memory_region("mine", slash + key, 256)
        try:
            client.register_system_shared_memory("mine", slash + key, 256)
            status = client.get_system_shared_memory_status("mine").regions["mine"]
            assert (status.key, status.byte_size) == ("/" + key, 256)
            refused(lambda: client.register_system_shared_memory("mine", slash + key, 256),
                    "ALREADY_EXISTS", "mine")
            client.unregister_system_shared_memory("mine")
        finally:
            shared_memory.destroy_shared_memory_region(handle)
    client.unregister_system_shared_memory("strange")
    refused(lambda: client.get_system_shared_memory_status("strange"), "NOT_FOUND",
            "Unable to find shared memory region: 'strange'")
    # Triton answers INTERNAL, which with us is a fault of the server's.
    refused(lambda: client.register_system_shared_memory("none", "/castor-no-such", 8),
            "INVALID_ARGUMENT", "key")


def tensors_in_regions(client, _):
    """all inputs and outputs in shared memory, and a raw input between them"""
    arrays = draw()
    size = arrays[0].nbytes
    key = f"castor-{uuid.uuid4().hex}"
    handle = shared_memory.create_shared_memory_region("all", key, 5 * size)
    try:
        client.register_system_shared_memory("all", key, 5 * size)
        inputs = tensors(arrays)
        shared_memory.set_shared_memory_region(handle, [arrays[0]])
        shared_memory.set_shared_memory_region(handle, [arrays[2]], offset=2 * size)
        inputs[0].set_shared_memory("all", size)
        inputs[2].set_shared_memory("all", size, offset=2 * size)  # `key` stays raw
        outputs = [triton.InferRequestedOutput(name) for name in ("output", "log_sum_exp")]
        outputs[0].set_shared_memory("all", size, offset=3 * size)
        answer = client.infer(ATTENTION, inputs, outputs=outputs)
        assert answer.get_response().raw_output_contents[0] == b""
        assert answer.as_numpy("log_sum_exp").shape == SHAPE[:2]
        got = shared_memory.get_contents_as_numpy(handle, np.float32, list(SHAPE), offset=3 * size)
        np.testing.assert_allclose(got, exact(*arrays), atol=1e-5)
        outputs[0].set_shared_memory("all", size - 1, offset=3 * size)
        refused(lambda: client.infer(ATTENTION, inputs, outputs=outputs), "INVALID_ARGUMENT",
                "output")
        inputs[0].set_shared_memory("all", size, offset=5 * size - 1)
        refused(lambda: client.infer(ATTENTION, inputs), "INVALID_ARGUMENT", "query")
        inputs[0].set_shared_memory("strange", size)
        refused(lambda: client.infer(ATTENTION, inputs), "NOT_FOUND", "strange")
        client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def texts_in_regions(client, _):
    """BYTES and embeddings in shared memory"""
    words = np.array([[b"a cat"], [b"two dogs"]], dtype=np.object_)
    in_message = client.infer("embed", texts("a cat", "two dogs")).as_numpy("embeddings")
    size = sum(4 + len(word) for word in words.flatten())
    key = f"castor-{uuid.uuid4().hex}"
    handle = shared_memory.create_shared_memory_region("texts", key, 1 << 16)
    try:
        client.register_system_shared_memory("texts", key, 1 << 16)
        shared_memory.set_shared_memory_region(handle, [serialize_byte_tensor(words)])
        text = texts("a cat", "two dogs")
        text[0].set_shared_memory("texts", size)
        output = triton.InferRequestedOutput("embeddings")
        output.set_shared_memory("texts", in_message.nbytes, offset=4096)
        client.infer("embed", text, outputs=[output])
        got = shared_memory.get_contents_as_numpy(handle, np.float32, list(in_message.shape),
                                                  offset=4096)
        np.testing.assert_array_equal(got, in_message)
        client.unregister_system_shared_memory("texts")
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def analyzer(client, _):
    """the calls that perf_analyzer makes, in its order, with random bytes for tensors"""
    client.get_model_metadata(ATTENTION)
    client.get_model_config(ATTENTION)
    client.get_server_metadata()
    before = client.get_inference_statistics(ATTENTION).model_stats[0].inference_stats
    generator = np.random.default_rng(1)
    inputs = []
    for name in ("query", "key", "value"):
        inputs.append(triton.InferInput(name, list(SHAPE), "FP32"))
        inputs[-1]._raw_content = generator.bytes(4 * int(np.prod(SHAPE)))
    for number in range(20):
        try:
            client.infer(ATTENTION, inputs, request_id=str(number),
                         parameters={"check_finite": False})
        except InferenceServerException as error:
            assert error.status() == "StatusCode.INVALID_ARGUMENT", error
    after = client.get_inference_statistics(ATTENTION).model_stats[0].inference_stats
    assert after.success.count + after.fail.count == before.success.count + before.fail.count + 20


def model_control(client, _):
    """loading is refused with a reason"""
    refused(lambda: client.load_model("embed"), "FAILED_PRECONDITION", "when the engine starts")
    refused(lambda: client.unload_model("embed"), "FAILED_PRECONDITION", "when the engine starts")


ROWS = [health, metadata, infer, halves, parameters, errors, compression, encoders, statistics,
        asynchronous, streams, streams_with_codes, asyncio_client, regions, tensors_in_regions,
        texts_in_regions, analyzer, model_control]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    castor = server.Server(parser.parse_args().server)
    try:
        server.run(ROWS, triton.InferenceServerClient(castor.url), castor.url)
    finally:
        castor.stop()


if __name__ == "__main__":
    main()

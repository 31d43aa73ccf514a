#!/usr/bin/env python3
"""What KServe's own Python client, unmodified, is promised by a server.

    kserve_client.py --server build/server/castor-server
"""

import argparse
import asyncio
import logging

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as messages
from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc as stubs

import server

ATTENTION = "castor_attention"
SHAPE = [5, 2, 8]


def request(datatype="FP32", binary=True, **parameters) -> InferRequest:
    array = np.linspace(-1, 1, int(np.prod(SHAPE)), dtype=np.float32).reshape(SHAPE)
    inputs = []
    for name in ("query", "key", "value"):
        inputs.append(InferInput(name, SHAPE, datatype))
        inputs[-1].set_data_from_numpy(array.astype(np.float16 if datatype == "FP16" else np.float32),
                                       binary_data=binary)
    return InferRequest(model_name=ATTENTION, infer_inputs=inputs, request_id="mine",
                        parameters=parameters)


async def health(client, _):
    """live, ready, and whether a model is"""
    assert await client.is_server_live() and await client.is_server_ready()
    assert await client.is_model_ready(ATTENTION)


async def contents(client, _):
    """raw and typed contents give the same answer; FP16 is raw"""
    raw = await client.infer(request())
    typed = await client.infer(request(binary=False))
    assert raw.id == "mine" and raw.outputs[0].name == "output"
    np.testing.assert_array_equal(raw.outputs[0].as_numpy(), typed.outputs[0].as_numpy())
    half = await client.infer(request("FP16"))
    np.testing.assert_allclose(half.outputs[0].as_numpy(), raw.outputs[0].as_numpy(), atol=1e-2)


async def parameters(client, _):
    """its three types of parameters, numbers with a point as texts"""
    answer = await client.infer(request(attention="clustered", clusters=2, softmax_scale="0.5",
                                        check_finite=True))
    assert answer.parameters["attention"].string_param == "clustered"


async def texts(client, _):
    """BYTES in, embeddings out"""
    text = InferInput("text", [2, 1], "BYTES")
    text.set_data_from_numpy(np.array([[b"a cat"], [b"two dogs"]], dtype=np.object_))
    answer = await client.infer(InferRequest(model_name="embed", infer_inputs=[text]))
    assert answer.outputs[0].name == "embeddings" and answer.outputs[0].shape[0] == 2


async def errors(client, _):
    """an unknown model"""
    wrong = request()
    wrong.model_name = "strange"
    try:
        await client.infer(wrong)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
    else:
        raise AssertionError("not refused")


async def stub(_, url):
    """the rest of its proto, by its generated stub"""
    async with grpc.aio.insecure_channel(url) as channel:
        service = stubs.GRPCInferenceServiceStub(channel)
        about = await service.ServerMetadata(messages.ServerMetadataRequest())
        assert about.name == "castor"
        model = await service.ModelMetadata(messages.ModelMetadataRequest(name=ATTENTION))
        assert [tensor.name for tensor in model.inputs][:3] == ["query", "key", "value"]
        try:
            await service.RepositoryModelLoad(messages.RepositoryModelLoadRequest(model_name="embed"))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        else:
            raise AssertionError("not refused")


def synchronous(row):
    def call(url):
        async def use():
            client = InferenceGRPCClient(url=url)
            try:
                await row(client, url)
            finally:
                await client.close()

        asyncio.run(use())

    call.__doc__ = row.__doc__
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    logging.disable()  # it logs each error
    castor = server.Server(parser.parse_args().server)
    try:
        rows = [health, contents, parameters, texts, errors, stub]
        server.run([synchronous(row) for row in rows], castor.url)
    finally:
        castor.stop()


if __name__ == "__main__":
    main()

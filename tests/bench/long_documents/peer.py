"""Loads a model in one runtime, encodes one document, and prints what that took as JSON.

    peer.py RUNTIME MODEL_DIRECTORY TOKENS THREADS WORK_DIRECTORY ROUNDS

A process of its own for each measurement, so that its peak is that of this document alone. The
first pass of 64 tokens brings in what is loaded late.
"""

import json
import pathlib
import sys
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "encoder_peers"))
import runtimes  # noqa: E402


def load_sentence_transformers(model, threads, work):
    return runtimes.load_torch("fp32", model, work, threads, [])


def load_onnxruntime(model, threads, work):
    """With its operator for attention in blocks, where its optimizer finds the pattern."""
    import onnxruntime as ort
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions
    fused = pathlib.Path(model) / "model.fused.onnx"
    if not fused.exists():
        wanted = FusionOptions("bert")
        wanted.use_multi_head_attention = True
        optimizer.optimize_model(
            str(runtimes.export_onnx(model, work)), model_type="bert", num_heads=12,
            hidden_size=768, opt_level=1, optimization_options=wanted
        ).save_model_to_file(str(fused))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(fused), options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(["rows"], {"input_ids": ids, "attention_mask": mask})[0]


def load_openvino(model, threads, work):
    """Converted from torch, so that attention stays one operation."""
    import openvino as ov
    import torch
    from transformers import AutoModel
    network = AutoModel.from_pretrained(model, attn_implementation="sdpa").eval()
    network.config.return_dict = False
    ids = torch.ones((1, 128), dtype=torch.int64)
    graph = ov.convert_model(network, example_input={"input_ids": ids,
                                                     "attention_mask": torch.ones_like(ids)})
    del network
    compiled = ov.Core().compile_model(graph, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    return lambda ids, mask: request.infer(
        {"input_ids": ids, "attention_mask": mask})[compiled.output(0)]


LOADERS = {"sentence-transformers": load_sentence_transformers, "onnxruntime": load_onnxruntime,
           "openvino": load_openvino}


def mib(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main():
    runtime, model, tokens, threads, work, rounds = sys.argv[1:7]
    answers = sys.stdout
    sys.stdout = sys.stderr  # what runtimes print is no answer
    run = LOADERS[runtime](model, int(threads), pathlib.Path(work))
    ids = np.random.default_rng(1).integers(2000, 20000, (1, int(tokens)))
    mask = np.ones_like(ids)
    run(ids[:, :64], mask[:, :64])
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    seconds = []
    for _ in range(int(rounds)):
        start = time.perf_counter()
        run(ids, mask).mean(1)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "peak_mib": mib("VmHWM")}), file=answers, flush=True)


if __name__ == "__main__":
    main()

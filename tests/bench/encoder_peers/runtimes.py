"""Loads a BERT from a directory in each runtime: a function of ids and masks to rows.

A loader takes the type ("fp32", "bf16", "int8"), the model's directory, a directory for converted
models, the number of threads, and the texts' ids, which some want for calibration. It returns
run(ids, mask): int64 [texts, longest] each, to float32 [texts, longest, hidden].
"""

import numpy as np


def load_torch(dtype, model, work, threads, sequences):
    """sentence-transformers' own module, called after its tokenizer."""
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(threads)
    module = SentenceTransformer(model, device="cpu")
    if dtype == "bf16":
        module = module.to(torch.bfloat16)
    transformer = module[0]

    def run(ids, mask):
        with torch.inference_mode():
            features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
            return transformer(features)["token_embeddings"].float().numpy()
    return run


def export_onnx(model, work):
    """The encoder in ONNX, exported once."""
    path = work / "model.onnx"
    if path.exists():
        return path
    import torch
    from transformers import AutoModel
    bert = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    bert.config.return_dict = False
    ids = torch.ones((2, 7), dtype=torch.int64)
    with torch.no_grad():
        outputs = len(bert(ids, torch.ones_like(ids)))  # not every model has a pooled one
    torch.onnx.export(
        bert, (ids, torch.ones_like(ids)), str(path), dynamo=False, opset_version=17,
        input_names=["input_ids", "attention_mask"], output_names=["rows", "pooled"][:outputs],
        dynamic_axes={name: {0: "texts", 1: "tokens"}
                      for name in ("input_ids", "attention_mask", "rows")})
    return path


def load_onnxruntime(dtype, model, work, threads, sequences):
    """Graph optimised as for transformers; int8 is its dynamic quantization, per channel."""
    import onnxruntime as ort
    from onnxruntime.transformers import optimizer
    path = export_onnx(model, work)
    fused = work / "model.fused.onnx"
    if not fused.exists():
        optimizer.optimize_model(str(path), model_type="bert", num_heads=0, hidden_size=0,
                                 opt_level=1).save_model_to_file(str(fused))
    if dtype == "int8":
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantized = work / "model.int8.onnx"
        if not quantized.exists():
            quantize_dynamic(str(fused), str(quantized), weight_type=QuantType.QInt8,
                             per_channel=True,
                             extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        fused = quantized
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(fused), options, providers=["CPUExecutionProvider"])

    def run(ids, mask):
        return session.run(["rows"], {"input_ids": ids, "attention_mask": mask})[0]
    return run


def load_openvino(dtype, model, work, threads, sequences):
    """bf16 as the precision of inference; int8 is nncf's, calibrated on some of the texts."""
    import openvino as ov
    core = ov.Core()
    graph = core.read_model(export_onnx(model, work))
    if dtype == "int8":
        import nncf
        calibration = [{"input_ids": np.array([ids], dtype=np.int64),
                        "attention_mask": np.ones((1, len(ids)), dtype=np.int64)}
                       for ids in sequences[::4]]
        graph = nncf.quantize(graph, nncf.Dataset(calibration), subset_size=len(calibration),
                              model_type=nncf.ModelType.TRANSFORMER)
    compiled = core.compile_model(graph, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bf16" else "f32"})
    request = compiled.create_infer_request()

    def run(ids, mask):
        return request.infer({"input_ids": ids, "attention_mask": mask})[compiled.output(0)]
    return run


def load_ctranslate2(dtype, model, work, threads, sequences):
    import ctranslate2
    converted = work / f"ctranslate2-{dtype}"
    if not converted.exists():
        ctranslate2.converters.TransformersConverter(model).convert(
            str(converted), quantization="int8" if dtype == "int8" else "float32")
    encoder = ctranslate2.Encoder(str(converted), device="cpu", intra_threads=threads,
                                  compute_type="int8" if dtype == "int8" else "float32")

    def run(ids, mask):
        lengths = mask.sum(1)
        lists = [row[:length].tolist() for row, length in zip(ids, lengths)]
        return np.array(encoder.forward_batch(lists).last_hidden_state)
    return run


def version_of(module):
    return lambda: __import__(module).__version__


LOADERS = {"sentence-transformers": load_torch, "onnxruntime": load_onnxruntime,
           "openvino": load_openvino, "ctranslate2": load_ctranslate2}
VERSIONS = {"sentence-transformers": version_of("sentence_transformers"),
            "onnxruntime": version_of("onnxruntime"), "openvino": version_of("openvino"),
            "ctranslate2": version_of("ctranslate2")}

"""What the libraries of this Python make of a model directory: its ids and rows, or their error."""

import json
import os
import pathlib
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.filterwarnings("ignore")

# pylint: disable=wrong-import-position
import sentence_transformers
import torch
import transformers

VERSIONS = {"sentence_transformers": sentence_transformers.__version__,
            "transformers": transformers.__version__}


def rounded(rows):
    if not torch.isfinite(rows).all():
        raise ValueError("not finite")
    return [[round(x, 6) for x in row] for row in rows.float().tolist()]


def read(folder, name):
    try:
        content = json.loads((folder / name).read_text())
    except (OSError, ValueError):
        content = None
    return content if isinstance(content, dict) else {}


def kind_of(folder):
    """The class that reads it: one of sentence-transformers', or the head that config.json names."""
    config = read(folder, "config.json")
    if (folder / "modules.json").exists():
        kind = read(folder, "config_sentence_transformers.json").get("model_type")
        kind = {"ColBERT": "MultiVectorEncoder"}.get(kind, kind)
        return kind if kind in READERS else "SentenceTransformer"
    if "sentence_transformers" in config or "sbert_ce_default_activation_function" in config:
        return "CrossEncoder"
    if config.get("architectures") == ["HF_ColBERT"]:
        return "MultiVectorEncoder"
    for architecture in config.get("architectures") or []:
        for ending in ("SequenceClassification", "TokenClassification"):
            if architecture.endswith(ending):
                return ending
    return "SentenceTransformer"


def ids_of(model, item, task=None):
    """As `model` of sentence-transformers cuts and tokenizes."""
    inputs = model.preprocess([item], prompt=model.prompts.get(task or model.default_prompt_name),
                              **({"task": task} if task else {}))
    return inputs["input_ids"][0].tolist()


def open_sentence_transformer(folder):
    model = sentence_transformers.SentenceTransformer(str(folder))

    def compute(text, _):
        return {"ids": ids_of(model, text),
                "POOLED": rounded(model.encode([text], convert_to_tensor=True))}
    return compute


def open_cross_encoder(folder):
    model = sentence_transformers.CrossEncoder(str(folder))
    own = model.activation_fn

    def compute(text, pair):
        scores, logits = (
            rounded(model.predict([(text, pair)], convert_to_tensor=True,
                                  activation_fn=activation).reshape(1, -1))
            for activation in (own, torch.nn.Identity()))
        return {"ids": ids_of(model, (text, pair)), "SCORES": scores, "LOGITS": logits}
    return compute


def open_sparse_encoder(folder):
    model = sentence_transformers.SparseEncoder(str(folder))
    routed = hasattr(model[0], "sub_modules")

    def of_task(text, task, encode):
        rows = encode([text], convert_to_tensor=True, convert_to_sparse_tensor=False)
        return {"ids": ids_of(model, text, task), "SPARSE": rounded(rows)}

    def compute(text, _):
        computed = of_task(text, None, model.encode)
        if routed:
            computed["query"] = of_task(text, "query", model.encode_query)
            computed["document"] = of_task(text, "document", model.encode_document)
        return computed
    return compute


def open_multi_vector_encoder(folder):
    model = sentence_transformers.MultiVectorEncoder(str(folder))

    def of_task(text, task, encode):
        """Rows of the tokens that count when texts are compared; "kept" says which, if not all."""
        prompt = model.prompts.get(task)
        features = model.preprocess([text], prompt=prompt, task=task)
        with torch.no_grad():
            kept = model(features, task=task)["attention_mask"][0].bool().tolist()
        one = {"ids": features["input_ids"][0].tolist(), "TOKEN_EMBEDDINGS": rounded(encode(text))}
        return one if all(kept) else one | {"kept": [i for i, keep in enumerate(kept) if keep]}

    def compute(text, _):
        return {"query": of_task(text, "query", model.encode_query),
                "document": of_task(text, "document", model.encode_document)}
    return compute


def scored(config, logits):
    """As transformers' pipeline of text-classification does."""
    if config.problem_type == "regression":
        return logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return torch.sigmoid(logits)
    return torch.softmax(logits, -1)


def open_classifier(folder, of_tokens):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = (transformers.AutoModelForTokenClassification if of_tokens
            else transformers.AutoModelForSequenceClassification)
    model = kind.from_pretrained(folder).eval()
    limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 10**9))

    def compute(text, pair):
        inputs = tokenizer(text, pair, truncation="longest_first", max_length=limit,
                           return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        logits = logits if of_tokens else logits[None]
        scores = torch.softmax(logits, -1) if of_tokens else scored(model.config, logits)
        return {"ids": inputs["input_ids"][0].tolist(), "LOGITS": rounded(logits),
                "SCORES": rounded(scores)}
    return compute, list(model.config.id2label.values())


READERS = {"SentenceTransformer": open_sentence_transformer, "CrossEncoder": open_cross_encoder,
           "SparseEncoder": open_sparse_encoder, "MultiVectorEncoder": open_multi_vector_encoder}


def told(error, folder):
    return {"error": f"{type(error).__name__}: {error}".replace(str(folder), "DIR")[:160]}


def outcome(folder, cases, kind=None):
    """{"cases", "labels"} as heads/*/expected.json have them, of texts alone or of pairs alone where
    the class takes no other; or {"error"}, which a case may also have, if not all have one."""
    folder = pathlib.Path(folder)
    kind = kind or kind_of(folder)
    result = {}
    try:
        if kind in READERS:
            compute = READERS[kind](folder)
            cases = [case for case in cases if (case[1] is not None) == (kind == "CrossEncoder")]
        else:
            compute, result["labels"] = open_classifier(folder, kind == "TokenClassification")
    except Exception as error:  # whatever the library says
        return told(error, folder)
    result["cases"] = []
    for text, pair in cases:
        one = {"text": text, "pair": pair}
        try:
            computed = compute(text, pair)
        except Exception as error:
            computed = told(error, folder)
        for task in ("query", "document"):
            if task in computed:
                result["cases"].append(one | {"task": task} | computed.pop(task))
        if computed:
            result["cases"].append(one | computed)
    failed = [case["error"] for case in result["cases"] if "error" in case]
    return {"error": failed[0]} if len(failed) == len(result["cases"]) else result

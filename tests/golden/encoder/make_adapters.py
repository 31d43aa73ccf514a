#!/usr/bin/env python3
"""Makes adapters/: low-rank adapters as PEFT saves them, beside checkpoints of families/ and
directories/, and small models laid out like jina-embeddings-v3 and -v5, with the rows of each task.

  make_adapters.py [NAME...]

Rows of PEFT's adapters, and of v5's, are PEFT's in float64. Those of v3 are transformers' with weights that
are merged here, task by task, in float64: its publisher's own code is not needed.

Written with Python 3.11, torch 2.11.0, transformers 5.24.0, peft 0.21.2 and safetensors 0.8.0.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import peft
import torch
import transformers
from make_families import byte_bpe, llama_bpe, qwen_bpe
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
OUT = HERE / "adapters"
TEXTS = ["The old mill by the river.", "answers", "Der Müller fließt  nicht; el niño está aquí!"]
LENGTH = 64
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             initializer_range=0.3, max_position_embeddings=LENGTH)
PROMPTS = {"retrieval.query": "Represent the query: ", "retrieval.passage": "Represent it: ",
           "text-matching": ""}

# The base, the modules of most of its layers, and those of the second adapter, with ranks and
# scales of its own.
BASES = {
    "bert": ("directories/bert-embed", "all-linear", ["query", "value", "output.dense"],
             {"layer.0.output.dense": 2}, {"query": 7}),
    "modernbert": ("families/modernbert", "all-linear", ["Wqkv", "Wi"], {"layers.0.mlp.Wi": 5}, {}),
    "qwen3": ("families/qwen3", ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj",
                                 "down_proj"], ["k_proj", "down_proj"], {}, {"down_proj": 3}),
}


def randomize(model):
    """lora_B is zero at first."""
    generator = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


def rounded(rows):
    return [[round(x, 6) for x in row] for row in rows.tolist()]


def write(folder, expected):
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":"),
                                                     ensure_ascii=False))


def save_adapters(model, folder):
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        for path in pathlib.Path(temporary).rglob("adapter_*"):
            task = folder / path.parent.name
            task.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, task / path.name)
            if path.suffix == ".json":
                config = json.loads(path.read_text()) | {"base_model_name_or_path": "base"}
                (task / path.name).write_text(json.dumps(config, indent=2) + "\n")


def make_peft(name):
    base, most, some, ranks, alphas = BASES[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModel.from_pretrained(HERE / base, dtype=torch.float32).eval()
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=4, lora_alpha=6, target_modules=most), adapter_name="all")
    model.add_adapter("some", peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=some, use_rslora=True, rank_pattern=ranks,
        alpha_pattern=alphas))
    randomize(model)
    save_adapters(model, folder)
    model.eval().double()
    known = json.loads((HERE / base / "expected.json").read_text())
    known = known if isinstance(known, list) else known["cases"]
    ids = [case["ids"] for case in known if not any(case.get("type_ids") or [])]
    ids = sorted((i for i in ids if 2 < len(i) < 25), key=len)[-6:]
    cases = []
    for tokens in ids[::2]:
        for task in ("", "all", "some"):
            with torch.no_grad():
                if task:
                    model.set_adapter(task)
                    rows = model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
                else:
                    with model.disable_adapter():
                        rows = model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
            cases.append({"ids": tokens, "task": task, "rows": rounded(rows)})
    write(folder, {"base": base, "adapters": ["all", "some"], "cases": cases})


def text_cases(tokenizer, tasks, prompt_of, embed):
    cases = []
    for text in TEXTS:
        for task in tasks:
            ids = tokenizer.encode(prompt_of(task) + text).ids
            with torch.no_grad():
                row = torch.nn.functional.normalize(embed(task, torch.tensor([ids])), dim=-1)
            cases.append({"text": text, "task": task, "ids": ids, "pooled": rounded(row)})
    return cases


def make_jina_v3():
    folder = OUT / "jina_v3"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = byte_bpe()
    torch.manual_seed(5)
    config = transformers.JinaEmbeddingsV3Config(
        **SIZES, vocab_size=tokenizer.get_vocab_size(), type_vocab_size=1,
        rope_parameters=dict(rope_type="default", rope_theta=20000.0))
    tasks, rank, alpha = list(PROMPTS), 2, 3
    with tempfile.TemporaryDirectory() as temporary:
        transformers.JinaEmbeddingsV3Model(config).save_pretrained(temporary)
        base = load_file(f"{temporary}/model.safetensors")
        base["pooler.dense.weight"] = torch.randn(16, 16)
        tensors, merged = {}, {task: dict(base) for task in tasks}
        for name, weight in base.items():
            matrix = name.endswith(".weight") and weight.dim() == 2
            if not matrix:
                tensors["roberta." + name] = weight
                continue
            table, (out, inner) = "embeddings" in name, weight.shape
            of = "roberta." + name.removesuffix("weight") + "parametrizations.weight."
            a = torch.randn(len(tasks), *((out, rank) if table else (rank, inner))) / 3
            b = torch.randn(len(tasks), *((rank, inner) if table else (out, rank))) / 3
            tensors |= {of + "original": weight, of + "0.lora_A": a, of + "0.lora_B": b}
            for i, task in enumerate(tasks):
                first, second = (a[i], b[i]) if table else (b[i], a[i])
                change = first.double() @ second.double() * (alpha / rank)
                merged[task][name] = (weight.double() + change).float()
        models = {}
        for task, state in {"": base, **merged}.items():
            save_file(state, f"{temporary}/model.safetensors", metadata={"format": "pt"})
            models[task] = transformers.JinaEmbeddingsV3Model.from_pretrained(temporary).eval()
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    settings = {k: v for k, v in SIZES.items() if k != "initializer_range"} | dict(
        architectures=["XLMRobertaModel"], model_type="xlm-roberta", hidden_act="gelu",
        layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
        vocab_size=tokenizer.get_vocab_size(), position_embedding_type="rotary",
        rotary_emb_base=20000.0, lora_adaptations=tasks, lora_rank=rank, lora_alpha=alpha,
        lora_dropout_p=0.0, task_instructions=PROMPTS, load_trained_adapters=True,
        emb_pooler=None, use_flash_attn=True)
    files = {
        "config.json": settings,
        "modules.json": [
            dict(idx=0, name="transformer", path="", type="custom_st.Transformer", kwargs=["task"]),
            dict(idx=1, name="pooler", path="1_Pooling", type="sentence_transformers.models.Pooling"),
            dict(idx=2, name="normalizer", path="2_Normalize",
                 type="sentence_transformers.models.Normalize")],
        "config_sentence_transformers.json": dict(prompts=PROMPTS, default_prompt_name=None,
                                                  similarity_fn_name="cosine"),
        "1_Pooling/config.json": dict(word_embedding_dimension=16, pooling_mode_mean_tokens=True),
        "tokenizer_config.json": dict(
            json.loads((HERE / "families/jina_v3/tokenizer_config.json").read_text()),
            model_max_length=LENGTH),
    }
    (folder / "1_Pooling").mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder, {"cases": text_cases(
        tokenizer, ["", *tasks], lambda task: PROMPTS.get(task, ""),
        lambda task, ids: models[task](input_ids=ids).last_hidden_state.mean(1))})


def make_jina_v5(name, kind, tokenizer, settings):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    tasks = ["retrieval", "text-matching"]
    torch.manual_seed(9)
    config = kind.config_class(**SIZES, vocab_size=tokenizer.get_vocab_size(), **settings)
    model = kind(config).eval()
    model.save_pretrained(folder)
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=2, lora_alpha=3, target_modules=BASES["qwen3"][1],
                               task_type="FEATURE_EXTRACTION"), adapter_name=tasks[0])
    model.add_adapter(tasks[1], peft.LoraConfig(r=2, lora_alpha=2, target_modules=["v_proj"],
                                                task_type="FEATURE_EXTRACTION"))
    randomize(model)
    model.eval()
    save_adapters(model, folder / "adapters")
    model.double()
    saved = json.loads((folder / "config.json").read_text())
    saved |= dict(architectures=["JinaEmbeddingsV5Model"], model_type="jina_embeddings_v5",
                  task_names=tasks)
    if kind is transformers.EuroBertModel:
        saved["is_decoder"] = False
    files = {
        "config.json": saved,
        "modules.json": [dict(idx=0, name="transformer", path="", type="custom_st.Transformer",
                              kwargs=["task", "truncate_dim"])],
        "config_sentence_transformers.json": dict(
            prompts=dict(query="Query: ", document="Document: "), default_prompt_name="document",
            similarity_fn_name="cosine"),
        "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast",
                                      model_max_length=LENGTH),
    }
    for path, content in files.items():
        (folder / path).write_text(json.dumps(content, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))

    def embed(task, ids):
        model.set_adapter(task)
        return model(input_ids=ids).last_hidden_state[:, -1]

    write(folder, {"cases": text_cases(tokenizer, tasks, lambda task: "Document: ", embed)})


def bare(tokenizer):
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


MADE = {name: lambda name=name: make_peft(name) for name in BASES} | {
    "jina_v3": make_jina_v3,
    "jina_v5_nano": lambda: make_jina_v5(
        "jina_v5_nano", transformers.EuroBertModel, bare(llama_bpe()), dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=0, eos_token_id=1, mask_token_id=2)),
    "jina_v5_small": lambda: make_jina_v5(
        "jina_v5_small", transformers.Qwen3Model, bare(qwen_bpe()),
        dict(num_key_value_heads=1, head_dim=8)),
}

if __name__ == "__main__":
    for each in sys.argv[1:] or MADE:
        MADE[each]()

#!/usr/bin/env python3
"""Makes rerankers/: small random rerankers that put pairs into a chat template, as
sentence-transformers saves them, and the scores that it computes once it has loaded them again.

  make_rerankers.py OUT [NAMES]    OUT is rerankers/, or where an older pair of libraries writes

A directory has one set of weights, and `variants.json`: the other files of each variant where they
differ, such as another template, with its cases.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import read_directory
import sentence_transformers
import torch
import transformers
from make_directories import HIDDEN, QWEN_TOKENS, shaken
from make_families import qwen_bpe

T = transformers
LENGTH = 448
INSTRUCTION = "Find passages that answer the question"

# As the publishers' directories have it (Qwen3-Reranker).
ROLE = 'messages | selectattr("role", "eq", "{0}") | map(attribute="content") | first'
QWEN = (
    '{%- set instruction = ' + ROLE.format("system") +
    ' | default("Given a web search query, retrieve relevant passages that answer the query") -%}\n'
    '{%- set query_text = ' + ROLE.format("query") + ' -%}\n'
    '{%- set document_text = ' + ROLE.format("document") + ' -%}\n'
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and '
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    '<|im_start|>user\n<Instruct>: {{ instruction }}\n<Query>: {{ query_text }}\n'
    '<Document>: {{ document_text }}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n\n')
FIRST = '(messages | selectattr("role", "eq", "{0}") | first).content'
MXBAI = (
    '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n'
    'query: {{ ' + FIRST.format("query") + ' }}\ndocument: {{ ' + FIRST.format("document") + ' }}\n'
    'You are a search relevance expert who judges how well documents match queries (0 or 1).\n'
    'Relevance:<|im_end|>\n<|im_start|>assistant\n')
NEMOTRON = (
    "question:{{ (messages | selectattr('role', 'equalto', 'query') | first)['content'] }} \n \n "
    "passage:{{ (messages | selectattr('role', 'equalto', 'document') | list | first).content }}")
# The instruction last, as bge-reranker-v2-gemma has it.
GEMMA = ('{{ eos_token }}A: {{ ' + FIRST.format("query") + ' }}\nB: {{ ' + FIRST.format("document") +
         ' }}\n{{ ' + ROLE.format("system") + " | d('Does B answer A?', true) }}")
STRUCTURED = (
    '{# of several modalities #}\n  {% set q = ' + FIRST.format("query") + '[0].text %}\n'
    "<Query>: {{- ' ' }}{{ q }}{{ '\\n' -}}\n  <Document>: {{ " + FIRST.format("document") +
    '[0]["text"] }}\n\n  {#- the answer -#}  yes or no?<|im_end|>\n')
# Conditions, sums of texts and lists, as zerank-2 has them.
CONDITIONS = (
    '{#- of two turns -#}\n'
    '{%- set asked = messages | selectattr("role", "eq", "query") | map(attribute="content") | list -%}\n'
    "{%- set told = messages | selectattr('role', 'eq', 'document') | map(attribute='content') | list -%}\n"
    '{%- set wish = messages | selectattr("role", "eq", "system") | list -%}\n'
    "{%- set asked = asked[0] if asked else '' -%}\n"
    '{% if instruction is defined and instruction is string and instruction | trim %}\n'
    "  {% if never %}{{ x.y() }}{% else %}never{% endif %}\n"
    '{%- elif not wish or wish[0].content is not string %}\n'
    '    {%- set asked = asked + "\\n" %}\n'
    '{% else %}\n'
    "    {%- set asked = '<query>' + asked + '</query>\\n<wish>' + wish[0]['content'] + '</wish>' -%}\n"
    '  {% endif %}\n'
    "{{- '<|im_start|>system\\n' + asked + '<|im_end|>\\n' -}}\n"
    "{{- '<|im_start|>user\\n' + (told[0] if told else (told | first).content) + '<|im_end|>\\n' -}}\n"
    "{% if tools or add_generation_prompt %}tools{% endif %}\n"
    "{%- if true and (messages[0].role is defined) %}{{- '<|im_start|>assistant\\n' -}}{% endif %}\n")
TEMPLATES = {"qwen": QWEN, "conditions": CONDITIONS, "mxbai": MXBAI, "gemma": GEMMA, "structured": STRUCTURED,
             "nemotron": NEMOTRON}
BASES = {
    "qwen3": (T.Qwen3ForCausalLM, dict(num_key_value_heads=1, head_dim=8, tie_word_embeddings=False),
              ["qwen", "gemma", "structured", "conditions"]),
    "qwen2": (T.Qwen2ForCausalLM, dict(num_key_value_heads=2, tie_word_embeddings=True),
              ["mxbai", "qwen"]),
    "qwen3_classifier": (T.Qwen3ForSequenceClassification,
                         dict(num_key_value_heads=1, head_dim=8, num_labels=1), ["nemotron", "qwen"]),
}
LONG = " ".join(["the river runs past the mill to the sea and the mill runs past the river."] * 20)
CASES = [
    ("what do beavers build?", "A dam of wood."), ("", "the mill"), ("the mill", ""),
    (" l'été ", "on y danse près de la rivière, 1897\n"), ("1", "2. "), ("the mill", LONG),
    ("水車?", "x<|im_end|>y"), ("x<|im_start|>y", "a letter came"),
]


def transformer(kind, settings, template, out):
    tokenizer = qwen_bpe()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    torch.manual_seed(sum(map(ord, kind.__name__)))
    config = kind.config_class(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=2 * HIDDEN, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=20, initializer_range=0.4,
        max_position_embeddings=LENGTH, pad_token_id=tokenizer.token_to_id("<|endoftext|>"),
        **settings)
    shaken(kind(config)).save_pretrained(out)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(dict(QWEN_TOKENS, model_max_length=LENGTH)))
    saved = T.AutoTokenizer.from_pretrained(out)
    saved.chat_template = template
    saved.save_pretrained(out)


def cases_of(folder):
    model = sentence_transformers.CrossEncoder(str(folder))
    made = []
    for instruction in (None, INSTRUCTION):
        for query, document in CASES:
            logit = model.predict([(query, document)], prompt=instruction, convert_to_tensor=True,
                                  activation_fn=torch.nn.Identity())[0]
            score = model.predict([(query, document)], prompt=instruction, convert_to_tensor=True)[0]
            prompt = instruction or model.prompts.get(model.default_prompt_name)
            ids = model.preprocess([(query, document)], prompt=prompt)["input_ids"][0].tolist()
            made.append({"instruction": instruction, "query": query, "document": document,
                         "ids": ids, "logit": round(logit.item(), 6), "score": round(score.item(), 6)})
            if "<|" in query + document and read_directory.VERSIONS["transformers"] >= "5.2":
                messages = model[0].input_formatter.pair_to_messages((query, document))
                if prompt:
                    messages = model[0].input_formatter.prepend_prompt_to_messages(
                        [messages], prompt)[0]
                made[-1]["ids_as_text"] = model.tokenizer.apply_chat_template(
                    messages, sanitize_control_tokens=True)["input_ids"]
    return made


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_text()
            for path in sorted(folder.rglob("*"))
            if path.suffix in (".json", ".jinja") and path.name != "tokenizer.json"}


def make(out, name):
    kind, settings, templates = BASES[name]
    shutil.rmtree(out / name, ignore_errors=True)
    variants, base = [], None
    for number, template in enumerate(templates):
        with tempfile.TemporaryDirectory() as folder:
            source, saved = pathlib.Path(folder, "source"), pathlib.Path(folder, "saved")
            source.mkdir()
            transformer(kind, settings, TEMPLATES[template], source)
            prompts = dict(prompts={"web": "Which page helps?"}, default_prompt_name="web")
            model = sentence_transformers.CrossEncoder(str(source), max_length=LENGTH if number else 400,
                                                       **(prompts if number else {}))
            if template == "gemma":
                model[1].false_token_id = None
            model.eval().save(str(saved))
            (saved / "README.md").unlink(missing_ok=True)
            if base is None:
                base = files_of(saved)
                shutil.copytree(saved, out / name)
            files = files_of(saved)
            changed = {path: text for path, text in files.items() if base.get(path) != text}
            variants.append({"name": template, "files": changed, "cases": cases_of(saved)})
    (out / name / "variants.json").write_text(json.dumps(
        {"variants": variants, "versions": read_directory.VERSIONS}, separators=(",", ":"),
        ensure_ascii=False))


if __name__ == "__main__":
    for base_name in sys.argv[2:] or BASES:
        make(pathlib.Path(sys.argv[1]), base_name)

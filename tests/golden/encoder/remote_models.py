"""Models whose code transformers lacks, for small checkpoints on a CPU: what the code that their
publishers ship with the weights computes of padded batches, written anew from its definitions.

A model here is a config (as in config.json) and named weights. Calls are like transformers'.
"""

import math
import types

import torch
import transformers
from torch.nn import functional


class Model:
    """`shapes` names the weights; a subclass has `embed`, `attend` and `feed`."""

    def __init__(self, config):
        self.config = types.SimpleNamespace(**config)
        self.weights = {}
        for name, shape in self.shapes().items():
            if name.endswith("bias"):
                tensor = 0.2 * torch.randn(shape)
            elif len(shape) == 1:
                tensor = 1 + 0.2 * torch.randn(shape)
            else:
                tensor = 0.2 * torch.randn(shape)
            self.weights[name] = tensor

    def linear(self, name, x):
        return functional.linear(x, self.weights[name + ".weight"],
                                 self.weights.get(name + ".bias"))

    def norm(self, name, x):
        weight, bias = self.weights[name + ".weight"], self.weights.get(name + ".bias")
        if bias is None:  # RMSNorm
            return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon()))
        return functional.layer_norm(x, weight.shape, weight, bias, self.epsilon())

    def table(self, name, index):
        return functional.embedding(index, self.weights[name + ".weight"])

    def mix(self, q, k, v, mask, bias=0.0):
        """Attention of heads [batch, tokens, heads, size]."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
        scores = scores.masked_fill(mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def __call__(self, input_ids, attention_mask, token_type_ids=None):
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        x = self.embed(input_ids, token_type_ids)
        for layer in range(self.layers()):
            x = self.feed(layer, self.attend(layer, x, attention_mask))
        return types.SimpleNamespace(last_hidden_state=x)


def with_bias(shapes, name, out, into, bias=True):
    shapes[name + ".weight"] = (out, into)
    if bias:
        shapes[name + ".bias"] = (out,)


def with_norm(shapes, name, hidden, bias=True):
    shapes[name + ".weight"] = (hidden,)
    if bias:
        shapes[name + ".bias"] = (hidden,)


def turn(x, frequencies):
    """Rotates heads [batch, tokens, heads, size] by halves."""
    angles = torch.outer(torch.arange(x.shape[1]).float(), frequencies)
    cos, sin = (torch.cat((f, f), dim=-1)[None, :, None, :] for f in (angles.cos(), angles.sin()))
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def inverse(base, size):
    return 1.0 / (base ** (torch.arange(0, size, 2).float() / size))


class NomicBert(Model):
    """nomic-ai/nomic-bert-2048, for a single text at a time where rotations stretch: it keeps what
    it stretched to, here it is as if a text were the first."""

    def epsilon(self):
        return self.config.layer_norm_epsilon

    def layers(self):
        return self.config.n_layer

    def gated(self):
        return self.config.activation_function in ("swiglu", "geglu")

    def mixed(self, layer):
        every = getattr(self.config, "moe_every_n_layers", 0)
        return every > 0 and layer % every == 1

    def shapes(self):
        c, shapes = self.config, {}
        hidden, multiple = c.n_embd, c.pad_vocab_size_multiple
        words = -(-c.vocab_size // multiple) * multiple
        shapes["embeddings.word_embeddings.weight"] = (words, hidden)
        if c.rotary_emb_fraction == 0:
            shapes["embeddings.position_embeddings.weight"] = (c.n_positions, hidden)
        if c.type_vocab_size > 0:
            shapes["embeddings.token_type_embeddings.weight"] = (c.type_vocab_size, hidden)
        with_norm(shapes, "emb_ln", hidden)
        width = c.n_inner or (8 * hidden // 3 if self.gated() else 4 * hidden)
        if self.gated():
            width = -(-width // 256) * 256
        for i in range(c.n_layer):
            at = f"encoder.layers.{i}."
            with_bias(shapes, at + "attn.Wqkv", 3 * hidden, hidden, c.qkv_proj_bias)
            with_bias(shapes, at + "attn.out_proj", hidden, hidden, c.qkv_proj_bias)
            if self.mixed(i):
                shapes[at + "mlp.router.layer.weight"] = (c.num_experts, hidden)
                shapes[at + "mlp.experts.mlp.w1"] = (c.num_experts * width, hidden)
                shapes[at + "mlp.experts.mlp.w2"] = (c.num_experts * width, hidden)
                shapes[at + "mlp.experts.bias"] = (hidden,)
            else:
                for name in ("fc11", "fc12") if self.gated() else ("fc1",):
                    with_bias(shapes, at + "mlp." + name, width, hidden, c.mlp_fc1_bias)
                with_bias(shapes, at + "mlp.fc2", hidden, width, c.mlp_fc2_bias)
            with_norm(shapes, at + "norm1", hidden)
            with_norm(shapes, at + "norm2", hidden)
        return shapes

    def embed(self, ids, kinds):
        x = self.table("embeddings.word_embeddings", ids)
        if self.config.type_vocab_size > 0:
            x = x + self.table("embeddings.token_type_embeddings", kinds)
        if self.config.rotary_emb_fraction == 0:
            x = x + self.table("embeddings.position_embeddings", torch.arange(ids.shape[1]))
        return self.norm("emb_ln", x)

    def frequencies(self, length, size):
        c = self.config
        base = float(c.rotary_emb_base)
        if c.rotary_scaling_factor and length > c.max_trained_positions:
            stretch = c.rotary_scaling_factor * length / c.max_trained_positions
            base *= (stretch - (c.rotary_scaling_factor - 1)) ** (size / (size - 2))
        return inverse(base, size)

    def attend(self, layer, x, mask):
        at = f"encoder.layers.{layer}."
        size = self.config.n_embd // self.config.n_head
        q, k, v = self.linear(at + "attn.Wqkv", x).unflatten(-1, (3, -1, size)).unbind(2)
        if self.config.rotary_emb_fraction == 1:
            frequencies = self.frequencies(x.shape[1], size)
            q, k = turn(q, frequencies), turn(k, frequencies)
        mixed = self.linear(at + "attn.out_proj", self.mix(q, k, v, mask))
        return self.norm(at + "norm1", mixed + x)

    def feed(self, layer, x):
        at = f"encoder.layers.{layer}."
        if self.mixed(layer):
            return self.norm(at + "norm2", self.mix_experts(at + "mlp.", x) + x)
        if self.gated():
            act = functional.silu if self.config.activation_function == "swiglu" else functional.gelu
            wide = self.linear(at + "mlp.fc11", x) * act(self.linear(at + "mlp.fc12", x))
        else:
            wide = functional.gelu(self.linear(at + "mlp.fc1", x))
        return self.norm(at + "norm2", self.linear(at + "mlp.fc2", wide) + x)

    def mix_experts(self, at, x):
        """Of each token the experts with the greatest probabilities, weighted by these."""
        count = self.config.num_experts
        odds = self.linear(at + "router.layer", x).softmax(-1)
        chosen = odds >= odds.topk(self.config.moe_top_k, dim=-1).values[..., -1:]
        into, out = (self.weights[at + f"experts.mlp.w{i}"].view(count, -1, x.shape[-1])
                     for i in (1, 2))
        results = [functional.gelu(x @ into[e].T) @ out[e] for e in range(count)]
        return sum(odds[..., e, None] * chosen[..., e, None] * results[e]
                   for e in range(count)) + self.weights[at + "experts.bias"]


class Gte(Model):
    """Alibaba-NLP/new-impl."""

    ACTIVATIONS = {"gelu": functional.gelu, "silu": functional.silu}

    def epsilon(self):
        return self.config.layer_norm_eps

    def layers(self):
        return self.config.num_hidden_layers

    def shapes(self):
        c, shapes = self.config, {}
        hidden, width = c.hidden_size, c.intermediate_size
        shapes["embeddings.word_embeddings.weight"] = (c.vocab_size, hidden)
        if c.position_embedding_type == "absolute":
            shapes["embeddings.position_embeddings.weight"] = (c.max_position_embeddings, hidden)
        if c.type_vocab_size > 0:
            shapes["embeddings.token_type_embeddings.weight"] = (c.type_vocab_size, hidden)
        with_norm(shapes, "embeddings.LayerNorm", hidden)
        centered = c.layer_norm_type == "layer_norm"
        for i in range(c.num_hidden_layers):
            at = f"encoder.layer.{i}."
            if c.pack_qkv:
                with_bias(shapes, at + "attention.qkv_proj", 3 * hidden, hidden)
            else:
                for name in "qkv":
                    with_bias(shapes, at + f"attention.{name}_proj", hidden, hidden)
            with_bias(shapes, at + "attention.o_proj", hidden, hidden)
            with_bias(shapes, at + "mlp.up_gate_proj", 2 * width, hidden, False)
            with_bias(shapes, at + "mlp.down_proj", hidden, width)
            with_norm(shapes, at + "attn_ln", hidden, centered)
            with_norm(shapes, at + "mlp_ln", hidden, centered)
        return shapes

    def embed(self, ids, kinds):
        x = self.table("embeddings.word_embeddings", ids)
        if self.config.type_vocab_size > 0:
            x = x + self.table("embeddings.token_type_embeddings", kinds)
        if self.config.position_embedding_type == "absolute":
            x = x + self.table("embeddings.position_embeddings", torch.arange(ids.shape[1]))
        return self.norm("embeddings.LayerNorm", x)

    def frequencies(self, size):
        scaling, base = self.config.rope_scaling, self.config.rope_theta
        if scaling is None:
            return inverse(base, size)
        factor, mixed = scaling["factor"], scaling.get("mixed_b")
        if mixed is None:
            return inverse(base * factor, size) / factor ** (2 / size)
        slope = torch.tensor(factor).log() / (size / 2) ** mixed
        return inverse(base, size) / (slope * torch.arange(1, size // 2 + 1).float() ** mixed).exp()

    def attend(self, layer, x, mask):
        at = f"encoder.layer.{layer}."
        c = self.config
        size = c.hidden_size // c.num_attention_heads
        if c.pack_qkv:
            parts = self.linear(at + "attention.qkv_proj", x).split(c.hidden_size, dim=-1)
        else:
            parts = [self.linear(at + f"attention.{name}_proj", x) for name in "qkv"]
        q, k, v = (part.unflatten(-1, (-1, size)) for part in parts)
        if c.position_embedding_type == "rope":
            q, k = turn(q, self.frequencies(size)), turn(k, self.frequencies(size))
        mixed = self.linear(at + "attention.o_proj", self.mix(q, k, v, mask))
        return self.norm(at + "attn_ln", x + mixed)

    def feed(self, layer, x):
        at = f"encoder.layer.{layer}."
        up, gate = self.linear(at + "mlp.up_gate_proj", x).chunk(2, dim=-1)
        wide = self.ACTIVATIONS[self.config.hidden_act](gate) * up
        return self.norm(at + "mlp_ln", x + self.linear(at + "mlp.down_proj", wide))


def slopes(heads):
    """ALiBi's."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return slopes(lower) + slopes(2 * lower)[0::2][:heads - lower]


class JinaBert(Model):
    """jinaai/jina-bert-implementation."""

    CODE = False  # jinaai/jina-bert-v2-qk-post-norm

    def epsilon(self):
        return self.config.layer_norm_eps

    def layers(self):
        return self.config.num_hidden_layers

    def gated(self):
        return self.config.feed_forward_type != "original"

    def activate(self, x):
        reglu = self.config.feed_forward_type == "reglu"
        return functional.relu(x) if reglu else functional.gelu(x)

    def shapes(self):
        c, shapes = self.config, {}
        hidden, width = c.hidden_size, c.intermediate_size
        shapes["embeddings.word_embeddings.weight"] = (c.vocab_size, hidden)
        shapes["embeddings.token_type_embeddings.weight"] = (c.type_vocab_size, hidden)
        with_norm(shapes, "embeddings.LayerNorm", hidden)
        for i in range(c.num_hidden_layers):
            at = f"encoder.layer.{i}."
            for name in ("query", "key", "value"):
                with_bias(shapes, at + "attention.self." + name, hidden, hidden)
            with_bias(shapes, at + "attention.output.dense", hidden, hidden)
            with_norm(shapes, at + "attention.output.LayerNorm", hidden)
            self.more_shapes(shapes, at, hidden, width)
        return shapes

    def more_shapes(self, shapes, at, hidden, width):
        if self.gated():
            with_bias(shapes, at + "mlp.gated_layers", 2 * width, hidden, False)
            with_bias(shapes, at + "mlp.wo", hidden, width)
            with_norm(shapes, at + "mlp.layernorm", hidden)
        else:
            with_bias(shapes, at + "intermediate.dense", width, hidden)
            with_bias(shapes, at + "output.dense", hidden, width)
            with_norm(shapes, at + "output.LayerNorm", hidden)

    def embed(self, ids, kinds):
        return self.norm("embeddings.LayerNorm", self.table("embeddings.word_embeddings", ids) +
                         self.table("embeddings.token_type_embeddings", kinds))

    def attend(self, layer, x, mask):
        at = f"encoder.layer.{layer}.attention."
        heads = self.config.num_attention_heads
        q, k, v = (self.linear(at + "self." + name, x) for name in ("query", "key", "value"))
        if self.CODE:
            q, k = self.norm(at + "self.layer_norm_q", q), self.norm(at + "self.layer_norm_k", k)
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in (q, k, v))
        places = torch.arange(x.shape[1])
        distance = (places[None, :] - places[:, None]).abs()
        bias = -torch.tensor(slopes(heads))[:, None, None] * distance
        mixed = self.linear(at + "output.dense", self.mix(q, k, v, mask, bias))
        y = self.norm(at + "output.LayerNorm", mixed + x)
        return self.norm(f"encoder.layer.{layer}.layer_norm_1", x + y) if self.CODE else y

    def feed(self, layer, x):
        at = f"encoder.layer.{layer}."
        if not self.gated():
            wide = functional.gelu(self.linear(at + "intermediate.dense", x))
            return self.norm(at + "output.LayerNorm", self.linear(at + "output.dense", wide) + x)
        gated, rest = self.linear(at + "mlp.gated_layers", x).chunk(2, dim=-1)
        wide = self.activate(gated) * rest
        return self.norm(at + "mlp.layernorm", x + self.linear(at + "mlp.wo", wide))


class JinaBertCode(JinaBert):
    CODE = True

    def more_shapes(self, shapes, at, hidden, width):
        with_norm(shapes, at + "attention.self.layer_norm_q", hidden)
        with_norm(shapes, at + "attention.self.layer_norm_k", hidden)
        with_norm(shapes, at + "layer_norm_1", hidden)
        with_norm(shapes, at + "layer_norm_2", hidden)
        up, wide = ("up_gated_layer", 2 * width) if self.gated() else ("up_layer", width)
        with_bias(shapes, at + "mlp." + up, wide, hidden, False)
        with_bias(shapes, at + "mlp.down_layer", hidden, width)

    def feed(self, layer, x):
        at = f"encoder.layer.{layer}."
        if self.gated():
            up, gated = self.linear(at + "mlp.up_gated_layer", x).chunk(2, dim=-1)
            wide = up * self.activate(gated)
        else:
            wide = functional.gelu(self.linear(at + "mlp.up_layer", x))
        return self.norm(at + "layer_norm_2", x + self.linear(at + "mlp.down_layer", wide))


class LlamaBidirectionalForSequenceClassification(transformers.LlamaForSequenceClassification):
    """nvidia/llama-nemotron-rerank-1b-v2, whose body is transformers' Llama that looks both ways.
    Configs of transformers 5 lose a "temperature"."""

    temperature = 1.0

    def forward(self, input_ids, attention_mask):
        rows = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counts = attention_mask.sum(1)
        if self.config.pooling == "avg":
            pooled = (rows * attention_mask[..., None]).sum(1) / counts[:, None]
        elif self.config.pooling == "last":
            pooled = rows[torch.arange(len(rows)), counts - 1]
        else:
            pooled = rows[:, 0]
        return types.SimpleNamespace(logits=self.score(pooled) / self.temperature)

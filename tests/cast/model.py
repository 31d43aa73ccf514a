"""A small encoder whose attention is CAST (Engelenhoven, Strisciuglio, Talavera 2024, arXiv
2402.04239), or exact attention in its place: the same body, so that the two can be compared.

Batches are of sequences of one length, so nothing is padded. The choice of clusters has no
gradient, as in the paper; gradients flow through attention, summaries and their weights. The
parameters have the names that castor-server reads (engine/attention/cast/cast.md).
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Cast(nn.Module):
    """Everything but the projections of queries, keys and values, which the layer has."""

    def __init__(self, config):
        super().__init__()
        self.heads = config["num_attention_heads"]
        self.dim = config["hidden_size"] // self.heads
        self.clusters = config["cast_clusters"]
        self.size = config["cast_cluster_size"]
        self.laplace = config["cast_attention_function"] == "laplace"
        if config["cast_clustering"] != "top_k":
            raise ValueError("only top_k clusters are trained here")

    def weigh(self, scores, axis):
        if not self.laplace:
            return torch.softmax(scores, axis)
        mean, deviation = math.sqrt(0.5), math.sqrt(0.25 / math.pi)
        return 0.5 * (1 + torch.erf((scores - mean) / (deviation * math.sqrt(2))))

    def forward(self, q, k, v, surrogates, gate):
        """q, k, v [batch, tokens, heads, dim]; surrogates [clusters, heads, dim]; gate [batch,
        tokens]. Rows as q's."""
        batch, tokens, heads, dim = q.shape
        size = min(tokens, self.size or -(-tokens // self.clusters))
        scale = 1 / math.sqrt(dim)
        by_query = torch.einsum("bnhd,chd->bcnh", q, surrogates) * scale
        by_key = torch.einsum("bnhd,chd->bcnh", k, surrogates) * scale
        with torch.no_grad():
            share = torch.sigmoid(gate)[:, None, :, None]
            affinity = (share * self.weigh(by_query, 1) + (1 - share) * self.weigh(by_key, 1)).sum(3)
            members = affinity.topk(size, dim=2).indices.sort(dim=2).values  # [batch, clusters, size]

        def gather(x):  # [batch, tokens, heads, dim] -> [batch * clusters, heads, size, dim]
            rows = members.reshape(batch, -1, 1, 1).expand(-1, -1, heads, dim)
            return x.gather(1, rows).view(-1, size, heads, dim).transpose(1, 2)

        def of_members(x):  # [batch, clusters, tokens, heads] -> [batch, clusters, size, heads]
            return x.gather(2, members[..., None].expand(-1, -1, -1, heads))

        queries, keys, values = gather(q), gather(k), gather(v)
        if self.laplace:
            inside = self.weigh(queries @ keys.transpose(2, 3) * scale, 3) @ values
        else:
            inside = F.scaled_dot_product_attention(queries, keys, values)
        inside = inside.transpose(1, 2).view(batch, self.clusters, size, heads, dim)
        values = values.transpose(1, 2).view(batch, self.clusters, size, heads, dim)
        turn = (1 + F.softplus(-gate)).gather(1, members.flatten(1)).view_as(members)
        weights = self.weigh(of_members(by_key) * turn[..., None], 2)
        summaries = torch.einsum("bcsh,bcshd->bchd", weights, values)
        alpha = self.weigh(by_query * (1 + F.softplus(gate))[:, None, :, None], 1)
        other = torch.ones_like(affinity).scatter(2, members, 0.0)
        rows = torch.einsum("bcnh,bchd->bnhd", alpha * other[..., None], summaries)
        own = inside * of_members(alpha)[..., None]
        places = members.reshape(batch, -1, 1, 1).expand(-1, -1, heads, dim)
        return rows.scatter_add(1, places, own.reshape(batch, -1, heads, dim))


class Exact(nn.Module):
    """Exact attention; with `plain` its scores lie in memory, as the paper's baseline has them."""

    def __init__(self, plain=False):
        super().__init__()
        self.plain = plain

    def forward(self, q, k, v, surrogates, gate):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if self.plain:
            rows = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), 3) @ v
        else:
            rows = F.scaled_dot_product_attention(q, k, v)
        return rows.transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, config, attention):
        super().__init__()
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        wide, epsilon = config["intermediate_size"], config["layer_norm_eps"]
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.attention = nn.ModuleDict(
            {part: nn.Linear(hidden, hidden) for part in ("query", "key", "value", "output")})
        self.mix = attention
        if isinstance(attention, Cast):
            self.surrogate_tokens = nn.Parameter(
                torch.randn(config["cast_clusters"], heads, hidden // heads))
            self.gate = nn.Linear(hidden, 1)
        self.mlp_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.mlp = nn.ModuleDict({"in": nn.Linear(hidden, wide), "out": nn.Linear(wide, hidden)})

    def forward(self, x):
        normed = self.attention_norm(x)
        q, k, v = (self.attention[part](normed).unflatten(2, (self.heads, -1))
                   for part in ("query", "key", "value"))
        cast = isinstance(self.mix, Cast)
        mixed = self.mix(q, k, v, self.surrogate_tokens if cast else None,
                         self.gate(normed).squeeze(2) if cast else None)
        x = x + self.attention["output"](mixed.flatten(2))
        return x + self.mlp["out"](F.gelu(self.mlp["in"](self.mlp_norm(x))))


def sinusoids(positions, hidden):
    """[positions, hidden]: sine and cosine in turn (Vaswani et al. 2017)."""
    place = torch.arange(positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, hidden, 2, dtype=torch.float64)
    angle = place / 10000 ** (even / hidden)
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)[:, :hidden].float()


class Encoder(nn.Module):
    """`attention` is "cast", "exact", or "plain" for Exact(plain=True)."""

    def __init__(self, config, attention="cast"):
        super().__init__()
        hidden = config["hidden_size"]
        self.embeddings = nn.ModuleDict({"words": nn.Embedding(config["vocab_size"], hidden)})
        self.register_buffer("positions", sinusoids(config["max_position_embeddings"], hidden),
                             persistent=False)
        make = {"cast": lambda: Cast(config), "exact": Exact, "plain": lambda: Exact(plain=True)}
        self.layers = nn.ModuleList(
            Layer(config, make[attention]()) for _ in range(config["num_hidden_layers"]))
        self.final_norm = nn.LayerNorm(hidden, eps=config["layer_norm_eps"])
        self.classifier = nn.Linear(hidden, len(config["id2label"]))

    def forward(self, ids):
        """ids [batch, tokens]. Logits [batch, labels]."""
        x = self.embeddings["words"](ids) + self.positions[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.final_norm(x).mean(1))

"""The drafts of the demo target in plain PyTorch; parameters carry the published names.

They cover whole sequences: the context is computed again for every call, nothing is cached. In
training many blocks of one sequence run together, each with an anchor of its own.

Shapes: N sequences, T tokens, A anchors per sequence, B block rows, D hidden, V vocabulary.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

from model import Layer, Numerics, RMSNorm, linear, position_geometry

MASK_TOKEN = 4087  # <|mask|> of the tokenizer


@dataclasses.dataclass(frozen=True)
class DraftConfig:
    kind: str
    block_rows: int
    anchor_first: bool  # row 0 proposes the token behind the anchor
    taps: tuple = (1, 3, 5, 6)
    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 512
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rms_norm_eps: float = 1e-6
    rope_theta: float = 100000.0
    window: int = 0  # 0: none
    conv_width: int = 0
    conv_group: int = 16
    rank: int = 64
    top_k: int = 16

    @property
    def num_proposals(self):
        return self.block_rows if self.anchor_first else self.block_rows - 1


DFLASH2 = DraftConfig("dflash2", 8, anchor_first=False, window=256, conv_width=2)
DSPARK = DraftConfig("dspark", 7, anchor_first=True)


def norm(width, config):
    return RMSNorm(width, config.rms_norm_eps, Numerics.MIXED)


def turn(x, positions, theta):
    """Rope over halves: x [N, R, heads, head_dim], positions [N, R]."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half) / half)
    angles = positions[..., None, None] * frequency
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        hidden, width = config.hidden_size, config.head_dim
        self.q_proj = linear(hidden, config.num_attention_heads * width)
        self.k_proj = linear(hidden, config.num_key_value_heads * width)
        self.v_proj = linear(hidden, config.num_key_value_heads * width)
        self.o_proj = linear(config.num_attention_heads * width, hidden)
        self.q_norm, self.k_norm = norm(width, config), norm(width, config)

    def split(self, x):
        return x.unflatten(-1, (-1, self.config.head_dim))

    def keys_values(self, x, positions):
        keys = self.k_norm(self.split(self.k_proj(x)))
        return turn(keys, positions, self.config.rope_theta), self.split(self.v_proj(x))

    def forward(self, x, context, scene):
        """x [N, A * B, D], context [N, T, D] -> [N, A * B, D]."""
        q = self.q_norm(self.split(self.q_proj(x)))
        q = turn(q, scene.positions, self.config.rope_theta)
        old = self.keys_values(context, torch.arange(context.shape[1])[None])
        new = self.keys_values(x, scene.positions)
        k, v = (torch.cat(pair, 1).transpose(1, 2) for pair in zip(old, new))
        repeats = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = (t.repeat_interleave(repeats, 1) for t in (k, v))
        mixed = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, scene.mask)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


@dataclasses.dataclass(frozen=True)
class Scene:
    positions: torch.Tensor  # [N, A * B]
    mask: torch.Tensor  # bool [N, 1, A * B, T + A * B]

    @classmethod
    def of(cls, first_positions, num_context, config):
        rows = torch.arange(config.block_rows)
        positions = (first_positions[..., None] + rows).flatten(1)
        first = first_positions.repeat_interleave(config.block_rows, 1)
        key = torch.arange(num_context)
        sees = key < first[..., None]
        if config.window:
            sees &= key > positions[..., None] - config.window
        block = torch.arange(positions.shape[1]) // config.block_rows
        own = (block[:, None] == block).expand(len(positions), -1, -1)
        return cls(positions, torch.cat((sees, own), -1)[:, None])


class Convolution(nn.Module):
    """Depthwise over the rows of a block, with kernels that depend on the row."""

    def __init__(self, config):
        super().__init__()
        self.width, self.group, self.rows = config.conv_width, config.conv_group, config.block_rows
        base = torch.zeros(2, self.width, config.hidden_size)
        base[:, 0] = 1
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = linear(
            config.hidden_size, 2 * self.width * config.hidden_size // self.group
        )

    def kernels(self, normed):
        """-> for each side [N, A * B, taps, D]."""
        delta = self.kernel_projection(normed).float().unflatten(-1, (2, self.width, -1))
        return (self.base_kernel + delta.repeat_interleave(self.group, -1)).unbind(2)

    def apply(self, kernel, x):
        x = x.float().unflatten(1, (-1, self.rows))
        out = 0
        for t in range(self.width):
            moved = functional.pad(x, (0, 0, t, 0))[:, :, : self.rows].flatten(1, 2)
            out = out + kernel[:, :, t] * moved
        return out


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.intermediate_size)
        self.up_proj = linear(config.hidden_size, config.intermediate_size)
        self.down_proj = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = norm(config.hidden_size, config)
        self.post_attention_layernorm = norm(config.hidden_size, config)
        self.self_attn, self.mlp = Attention(config), MLP(config)
        if config.conv_width:
            self.attention_conv, self.mlp_conv = Convolution(config), Convolution(config)

    def sublayer(self, x, parts, function):
        normalise, convolution = parts
        normed = normalise(x)
        if convolution is None:
            return x + function(normed)
        kernel_in, kernel_out = convolution.kernels(normed)
        return x + convolution.apply(kernel_out, function(convolution.apply(kernel_in, normed)))

    def forward(self, x, context, scene):
        parts = self.input_layernorm, getattr(self, "attention_conv", None)
        x = self.sublayer(x, parts, lambda z: self.self_attn(z, context, scene))
        parts = self.post_attention_layernorm, getattr(self, "mlp_conv", None)
        return self.sublayer(x, parts, self.mlp)


class Backbone(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc = linear(len(config.taps) * config.hidden_size, config.hidden_size)
        self.hidden_norm = norm(config.hidden_size, config)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = norm(config.hidden_size, config)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                damping = 2 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
                damping = 20 if "kernel_projection" in name else damping
                nn.init.normal_(parameter, std=0.6 / math.sqrt(parameter.shape[1]) / damping)

    def forward(self, taps, anchors, first_positions, embeddings):
        """taps [N, T, m * D], anchors and first_positions [N, A] -> [N, A, B, D]."""
        config = self.config
        context = self.hidden_norm(self.fc(taps))
        ids = torch.full((*anchors.shape, config.block_rows), MASK_TOKEN)
        ids[..., 0] = anchors
        x = embeddings[ids.flatten(1)]
        scene = Scene.of(first_positions, taps.shape[1], config)
        for layer in self.layers:
            x = layer(x, context, scene)
        return self.norm(x).unflatten(1, (-1, config.block_rows))


class CandidateSelector(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.hidden_projection = linear(config.hidden_size, config.rank)
        self.predecessor_codebook = nn.Parameter(torch.randn(config.vocab_size, config.rank))
        self.successor_codebook = nn.Parameter(
            0.02 * torch.randn(config.vocab_size, config.rank)
        )

    def forward(self, values, ids, y, previous):
        """values, ids [..., K], y [..., D], previous [...] tokens -> edge scores [..., K]."""
        query = self.predecessor_codebook[previous] * self.hidden_projection(y).float()
        return values + (query[..., None, :] * self.successor_codebook[ids]).sum(-1)


class Dflash2Draft(Backbone):
    def __init__(self, config=DFLASH2):
        super().__init__(config)
        self.candidate_selector = CandidateSelector(config)

    def propose(self, y, logits, anchors, choose):
        """y [N, B, D], logits [N, G, V] -> (tokens [N, G], their distributions [N, G, V])."""
        values, ids = logits.topk(self.config.top_k, -1)
        tokens, distributions = [anchors], []
        for d in range(self.config.num_proposals):
            edges = self.candidate_selector(values[:, d], ids[:, d], y[:, d + 1], tokens[-1])
            scores = torch.full_like(logits[:, d], -math.inf).scatter(-1, ids[:, d], edges)
            token, distribution = choose(scores)
            tokens.append(token)
            distributions.append(distribution)
        return torch.stack(tokens[1:], 1), torch.stack(distributions, 1)


class MarkovHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.rank)
        self.markov_w2 = linear(config.rank, config.vocab_size)
        nn.init.normal_(self.markov_w2.weight, std=0.02)


class ConfidenceHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Linear(config.hidden_size + config.rank, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)


class DsparkDraft(Backbone):
    def __init__(self, config=DSPARK):
        super().__init__(config)
        self.markov_head, self.confidence_head = MarkovHead(config), ConfidenceHead(config)

    def correct(self, y, previous):
        """y [..., D], previous [...] -> (Markov bias [..., V], confidence score [...])."""
        e = self.markov_head.markov_w1(previous)
        with torch.autocast("cpu", enabled=False):
            score = self.confidence_head.proj(torch.cat((y.float(), e), -1))[..., 0]
        return self.markov_head.markov_w2(e), score

    def propose(self, y, logits, anchors, choose):
        tokens, distributions = [anchors], []
        for k in range(self.config.num_proposals):
            bias, _ = self.correct(y[:, k], tokens[-1])
            token, distribution = choose(logits[:, k] + bias)
            tokens.append(token)
            distributions.append(distribution)
        return torch.stack(tokens[1:], 1), torch.stack(distributions, 1)


class SharedHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = norm(config.hidden_size, config)


class MtpDraft(Layer):
    """One more layer of the target, fed with its hidden states and the tokens that followed."""

    def __init__(self, config, like_layer):
        """like_layer: index of the target's layer whose shape it has."""
        super().__init__(config, like_layer, Numerics.MIXED)
        self.target_config = config
        self.enorm, self.hnorm = norm(config.hidden_size, config), norm(config.hidden_size, config)
        self.eh_proj = linear(2 * config.hidden_size, config.hidden_size)
        self.shared_head = SharedHead(config)

    def inputs(self, embedded, hidden):
        return self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), -1))

    def iterate(self, x, step, past):
        """One iteration of every row: row i stands at position i + step.

        x [N, T, D]; past: keys and values of the iterations before, appended to here. A row sees
        the rows of the first iteration up to its own, and the later iterations of its own.
        -> (carry [N, T, D], queries of the indexer's distillation or None)
        """
        attn, num_rows = self.self_attn, x.shape[1]
        table = position_geometry(self.target_config, num_rows + step, Numerics.MIXED)
        geometry = table._replace(cos=table.cos[step:], sin=table.sin[step:])
        normed = self.input_layernorm(x)
        latent = attn.q_a_layernorm(attn.q_a_proj(normed))
        q = attn.queries(latent, geometry)
        past.append(attn.keys_and_values(normed, geometry))
        scale = q.shape[-1] ** -0.5
        first_keys, first_values = past[0]
        mask = table.causal_mask[:num_rows, :num_rows]
        scores = [(q @ first_keys.transpose(-1, -2)).float() * scale + mask]
        scores += [(q * k).float().sum(-1, keepdim=True) * scale for k, _ in past[1:]]
        weights = torch.cat(scores, -1).softmax(-1)
        heads = weights[..., :num_rows] @ first_values
        for i, (_, values) in enumerate(past[1:]):
            heads = heads + weights[..., num_rows + i, None] * values
        h = x + attn.o_proj(heads.transpose(1, 2).flatten(2))
        h = h + self.mlp(self.post_attention_layernorm(h))
        distil = None
        if step == 0:
            index = attn.indexer(normed.detach(), latent.detach(), geometry) + mask
            distil = index, weights.detach().mean(1)
        return self.shared_head.norm(h), distil

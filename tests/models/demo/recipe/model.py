"""The demo model in plain PyTorch: MLA, lightning indexer with shared selections, MoE.

An independent implementation, written from the formulas, of what the Hugging Face class
`GlmMoeDsaForCausalLM` computes for this configuration; parameters carry the names of the published
checkpoints. It covers whole sequences only (no cache) and keeps every [T, T] matrix, which is what
training the indexer needs.

Shapes: B sequences, T tokens, H heads, D = hidden_size.
"""

import dataclasses
import enum
import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

LATENT_NORM_EPS = 1e-6  # of the norms of both latents and of the index keys
ROUTER_BIAS_STEP = 1e-3


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The fields of config.json that shape the model, in the order in which they are written."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 768
    moe_intermediate_size: int = 160
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    n_shared_experts: int = 1
    n_routed_experts: int = 8
    routed_scaling_factor: float = 2.5
    kv_lora_rank: int = 128
    q_lora_rank: int = 128
    qk_rope_head_dim: int = 32
    v_head_dim: int = 32
    qk_nope_head_dim: int = 32
    n_group: int = 1
    topk_group: int = 1
    num_experts_per_tok: int = 2
    norm_topk_prob: bool = True
    hidden_act: str = "silu"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    first_k_dense_replace: int = 1
    index_topk: int = 256
    index_head_dim: int = 64
    index_n_heads: int = 4
    # A "shared" layer attends to the positions that the last "full" layer before it selected.
    indexer_types: tuple = ("full",) * 3 + ("shared",) * 3 + ("full", "shared")
    rope_theta: float = 100000.0

    @classmethod
    def from_file(cls, path):
        """Reads config.json of a Hugging Face directory."""
        stored = json.loads(Path(path).read_text())
        stored["rope_theta"] = stored["rope_parameters"]["rope_theta"]
        stored["indexer_types"] = tuple(stored["indexer_types"])
        return cls(**{field.name: stored[field.name] for field in dataclasses.fields(cls)})

    def indexer_groups(self):
        """[[layer_idx]]: each full layer with the shared layers that follow it."""
        groups = []
        for layer_idx, kind in enumerate(self.indexer_types):
            if kind == "full":
                groups.append([])
            groups[-1].append(layer_idx)
        return groups


class Numerics(enum.Enum):
    """MIXED trains: attention products of bf16 values, norms and router in float32.
    EXACT is float64 throughout; the weights must be converted with `.double()`."""

    MIXED = enum.auto()
    EXACT = enum.auto()

    @property
    def table_dtype(self):
        return torch.float64 if self is Numerics.EXACT else torch.float32

    def widen(self, tensor):
        return tensor if self is Numerics.EXACT else tensor.float()

    def matmul(self, left, right):
        if self is Numerics.EXACT:
            return left @ right
        return (left.bfloat16() @ right.bfloat16()).float()


class AttentionMode(enum.Enum):
    """DENSE: every visible position. SPARSE: those that the indexer selects. DISTIL: dense, and
    the attention matrices and index scores are returned for training the indexer."""

    DENSE = enum.auto()
    SPARSE = enum.auto()
    DISTIL = enum.auto()


class Geometry(NamedTuple):
    """What depends on the positions only, once per forward pass."""

    cos: torch.Tensor  # [T, qk_rope_head_dim / 2]
    sin: torch.Tensor
    causal_mask: torch.Tensor  # [T, T] added to scores: 0 where visible, -inf elsewhere


class LayerTrace(NamedTuple):
    """What training the indexer needs from one layer; only in AttentionMode.DISTIL."""

    attention: torch.Tensor  # [B, T, T] averaged over heads, without gradient
    index_scores: torch.Tensor | None  # [B, T, T] not masked; None in a shared layer


def linear(num_inputs, num_outputs):
    return nn.Linear(num_inputs, num_outputs, bias=False)


def position_geometry(config, num_tokens, numerics):
    dtype, width = numerics.table_dtype, config.qk_rope_head_dim
    frequencies = config.rope_theta ** (-torch.arange(0, width, 2).to(dtype) / width)
    angles = torch.arange(num_tokens).to(dtype)[:, None] * frequencies[None]
    mask = torch.full((num_tokens, num_tokens), -math.inf, dtype=dtype).triu(1)
    return Geometry(angles.cos(), angles.sin(), mask)


def rotate(x, geometry):
    """Rope over interleaved pairs: x [..., T, qk_rope_head_dim], same shape back."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = geometry.cos, geometry.sin
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class RMSNorm(nn.Module):
    def __init__(self, width, eps, numerics):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.numerics = numerics

    def forward(self, x):
        x = self.numerics.widen(x)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Indexer(nn.Module):
    """score[t, s] = sum over index heads h of w[t, h] * relu(q[t, h] . k[s] / sqrt(head_dim))."""

    def __init__(self, config, numerics):
        super().__init__()
        self.num_heads, self.head_dim = config.index_n_heads, config.index_head_dim
        self.rope_dim = config.qk_rope_head_dim
        self.numerics = numerics
        self.wq_b = linear(config.q_lora_rank, self.num_heads * self.head_dim)
        self.wk = linear(config.hidden_size, self.head_dim)
        self.k_norm = nn.LayerNorm(self.head_dim, eps=LATENT_NORM_EPS)
        self.weights_proj = linear(config.hidden_size, self.num_heads)

    def rotate_front(self, x, geometry):
        """Unlike the heads of attention, index heads have their rope channels first."""
        front, rest = x[..., : self.rope_dim], x[..., self.rope_dim :]
        return torch.cat((rotate(front, geometry), rest), -1)

    def forward(self, x, q_latent, geometry):
        """x [B, T, D], q_latent [B, T, q_lora_rank] -> [B, T, T], not masked."""
        batch, num_tokens, _ = x.shape
        q = self.wq_b(q_latent).view(batch, num_tokens, self.num_heads, self.head_dim)
        k = self.k_norm(self.numerics.widen(self.wk(x))).unsqueeze(1)
        q = self.rotate_front(q.transpose(1, 2), geometry)
        k = self.rotate_front(k, geometry)
        products = self.numerics.matmul(q, k.transpose(-1, -2)) * self.head_dim**-0.5
        weights = self.weights_proj(x) * self.num_heads**-0.5
        return (weights.transpose(1, 2).unsqueeze(-1) * functional.relu(products)).sum(1)


class Attention(nn.Module):
    """Multi-head latent attention, expanded to full keys and values."""

    def __init__(self, config, layer_idx, numerics):
        super().__init__()
        self.num_heads, self.top_k = config.num_attention_heads, config.index_topk
        self.nope_dim, self.rope_dim = config.qk_nope_head_dim, config.qk_rope_head_dim
        self.value_dim, self.latent_dim = config.v_head_dim, config.kv_lora_rank
        self.numerics = numerics
        hidden, q_latent_dim = config.hidden_size, config.q_lora_rank
        head_dim = self.nope_dim + self.rope_dim
        self.q_a_proj = linear(hidden, q_latent_dim)
        self.q_a_layernorm = RMSNorm(q_latent_dim, LATENT_NORM_EPS, numerics)
        self.q_b_proj = linear(q_latent_dim, self.num_heads * head_dim)
        self.kv_a_proj_with_mqa = linear(hidden, self.latent_dim + self.rope_dim)
        self.kv_a_layernorm = RMSNorm(self.latent_dim, LATENT_NORM_EPS, numerics)
        self.kv_b_proj = linear(self.latent_dim, self.num_heads * (self.nope_dim + self.value_dim))
        self.o_proj = linear(self.num_heads * self.value_dim, hidden)
        is_full = config.indexer_types[layer_idx] == "full"
        self.indexer = Indexer(config, numerics) if is_full else None

    def split_heads(self, x):
        """[B, T, H * width] -> [B, H, T, width]."""
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def queries(self, q_latent, geometry):
        q = self.split_heads(self.q_b_proj(q_latent))
        nope, rope = q[..., : self.nope_dim], q[..., self.nope_dim :]
        return torch.cat((nope, rotate(rope, geometry)), -1)

    def keys_and_values(self, x, geometry):
        compressed = self.kv_a_proj_with_mqa(x)
        latent = self.kv_a_layernorm(compressed[..., : self.latent_dim])
        rope = rotate(compressed[..., self.latent_dim :].unsqueeze(1), geometry)
        expanded = self.split_heads(self.kv_b_proj(latent))
        nope, values = expanded[..., : self.nope_dim], expanded[..., self.nope_dim :]
        rope = rope.expand(-1, self.num_heads, -1, -1)  # one rope key for all heads
        return torch.cat((nope, rope), -1), values

    def select(self, index_scores, geometry):
        """-> [B, T, T] added to scores: 0 at the top-k visible positions, -inf elsewhere.

        A row that sees fewer than top-k positions also selects masked ones; the causal mask, which
        is added to the scores as well, drops them.
        """
        scores = index_scores + geometry.causal_mask
        chosen = scores.topk(min(self.top_k, scores.shape[-1]), -1).indices
        return torch.full_like(scores, -math.inf).scatter(-1, chosen, 0.0)

    def forward(self, x, geometry, selection, mode):
        """-> (output [B, T, D], selection for the layers that share it, LayerTrace or None)."""
        q_latent = self.q_a_layernorm(self.q_a_proj(x))
        q = self.queries(q_latent, geometry)
        k, v = self.keys_and_values(x, geometry)
        mask = geometry.causal_mask
        if mode is AttentionMode.SPARSE:
            if self.indexer is not None:
                selection = self.select(self.indexer(x, q_latent, geometry), geometry)
            mask = mask + selection.unsqueeze(1)
        scale = (self.nope_dim + self.rope_dim) ** -0.5
        scores = self.numerics.matmul(q, k.transpose(-1, -2)) * scale + mask
        probabilities = scores.softmax(-1)
        heads = self.numerics.matmul(probabilities, v)
        output = self.o_proj(heads.transpose(1, 2).flatten(2))
        trace = None
        if mode is AttentionMode.DISTIL:
            trace = self.trace(x.detach(), q_latent.detach(), probabilities.detach(), geometry)
        return output, selection, trace

    def trace(self, x, q_latent, probabilities, geometry):
        index_scores = None
        if self.indexer is not None:
            index_scores = self.indexer(x, q_latent, geometry)
        return LayerTrace(probabilities.mean(1), index_scores)


class MLP(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj = linear(hidden, intermediate)
        self.up_proj = linear(hidden, intermediate)
        self.down_proj = linear(intermediate, hidden)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; the correction bias takes part in the choice, not in the weights."""

    def __init__(self, config, numerics):
        super().__init__()
        self.top_k, self.scaling = config.num_experts_per_tok, config.routed_scaling_factor
        self.numerics = numerics
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))

    def forward(self, tokens):
        """tokens [N, D] -> (expert ids [N, top_k], weights [N, top_k])."""
        with torch.autocast("cpu", enabled=False):
            scores = functional.linear(self.numerics.widen(tokens), self.weight).sigmoid()
        ids = (scores + self.e_score_correction_bias).topk(self.top_k, -1).indices
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scaling
        if self.training:
            self.balance(ids)
        return ids, weights

    @torch.no_grad()
    def balance(self, ids):
        """Moves the bias of each expert by one step towards an even load."""
        load = torch.bincount(ids.flatten(), minlength=len(self.weight)).float()
        self.e_score_correction_bias += ROUTER_BIAS_STEP * torch.sign(load.mean() - load)


class MoE(nn.Module):
    def __init__(self, config, numerics):
        super().__init__()
        self.numerics = numerics
        hidden, intermediate = config.hidden_size, config.moe_intermediate_size
        self.experts = nn.ModuleList(
            MLP(hidden, intermediate) for _ in range(config.n_routed_experts)
        )
        self.gate = Router(config, numerics)
        self.shared_experts = MLP(hidden, intermediate * config.n_shared_experts)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        ids, weights = self.gate(tokens)
        routed = torch.zeros_like(tokens)
        for expert_idx, expert in enumerate(self.experts):
            rows, slots = torch.where(ids == expert_idx)
            if rows.numel() == 0:
                continue
            output = self.numerics.widen(expert(tokens[rows]))
            routed = routed.index_add(0, rows, output * weights[rows, slots].unsqueeze(-1))
        return (routed + self.shared_experts(tokens)).view(x.shape)


class Layer(nn.Module):
    def __init__(self, config, layer_idx, numerics):
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(hidden, eps, numerics)
        self.post_attention_layernorm = RMSNorm(hidden, eps, numerics)
        self.self_attn = Attention(config, layer_idx, numerics)
        if layer_idx < config.first_k_dense_replace:
            self.mlp = MLP(hidden, config.intermediate_size)
        else:
            self.mlp = MoE(config, numerics)

    def forward(self, x, geometry, selection, mode):
        attended, selection, trace = self.self_attn(
            self.input_layernorm(x), geometry, selection, mode
        )
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), selection, trace


class Decoder(nn.Module):
    def __init__(self, config, numerics):
        super().__init__()
        self.config, self.numerics = config, numerics
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Layer(config, layer_idx, numerics) for layer_idx in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, numerics)

    def forward(self, ids, mode):
        geometry = position_geometry(self.config, ids.shape[1], self.numerics)
        x, selection, traces = self.embed_tokens(ids), None, []
        for layer in self.layers:
            x, selection, trace = layer(x, geometry, selection, mode)
            traces.append(trace)
        return self.norm(x), traces


class DemoModel(nn.Module):
    def __init__(self, config, numerics=Numerics.MIXED):
        super().__init__()
        self.config = config
        self.model = Decoder(config, numerics)
        self.lm_head = linear(config.hidden_size, config.vocab_size)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=self.initial_deviation(name, parameter))

    def initial_deviation(self, name, parameter):
        """Matrices scale with their inputs; those that write to the residual stream are damped."""
        if "embed" in name or "lm_head" in name or "gate.weight" in name:
            return 0.02
        damping = 1
        if "o_proj" in name or "down_proj" in name:
            damping = math.sqrt(2 * self.config.num_hidden_layers)
        return 0.6 / math.sqrt(parameter.shape[1]) / damping

    def forward(self, ids, mode=AttentionMode.DENSE):
        """ids [B, T] int64 -> (hidden states [B, T, D] for lm_head, one LayerTrace per layer)."""
        return self.model(ids, mode)

    def indexer_parameters(self):
        return [p for name, p in self.named_parameters() if ".indexer." in name]

    def main_parameters(self):
        return [p for name, p in self.named_parameters() if ".indexer." not in name]

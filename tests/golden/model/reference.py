"""A naive fp64 forward pass of the GLM-5.x / DeepSeek-V3.2 skeleton in numpy.

Written from the formulas (expanded MLA, one loop per head and per expert). It shares no code with
the oracle it is compared against, not even the loader: it reads a Hugging Face directory by itself,
FP8 blocks included.
"""

import dataclasses
import json
import math
import struct
from pathlib import Path

import numpy as np

MASKED = -1e30  # stored in place of -inf: a reader of the vectors needs no special case
FP8_BLOCK = 128


@dataclasses.dataclass(frozen=True)
class Module:
    """A config and the weights below one prefix."""

    config: dict
    weights: dict
    prefix: str = ""

    def __getitem__(self, name):
        return self.weights[self.prefix + name]

    def below(self, name):
        return dataclasses.replace(self, prefix=f"{self.prefix}{name}.")


def e4m3_table():
    """The 256 values of float8 e4m3fn: bias 7, no infinities, 0x7f and 0xff are NaN."""
    values = np.empty(256)
    for code in range(256):
        sign, exponent, mantissa = code >> 7, (code >> 3) & 15, code & 7
        magnitude = (
            mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        )
        if exponent == 15 and mantissa == 7:
            magnitude = math.nan
        values[code] = -magnitude if sign else magnitude
    return values


def read_tensor(raw, dtype, shape):
    """Bytes of one safetensors entry -> float64."""
    if dtype == "BF16":
        bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64).reshape(shape)
    if dtype == "F8_E4M3":
        return e4m3_table()[np.frombuffer(raw, np.uint8)].reshape(shape)
    if dtype == "F32":
        return np.frombuffer(raw, np.float32).astype(np.float64).reshape(shape)
    raise ValueError(f"unexpected dtype {dtype}")


def load_directory(path):
    """-> (config dict, {name: float64 array}) with block scales multiplied in and removed."""
    path = Path(path)
    config = json.loads((path / "config.json").read_text())
    blob = (path / "model.safetensors").read_bytes()
    header_bytes = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        weights[name] = read_tensor(blob[begin:end], entry["dtype"], entry["shape"])
    for name in [n for n in weights if n.endswith(".weight_scale_inv")]:
        scale = weights.pop(name)
        target = name.removesuffix("_scale_inv")
        rows, cols = weights[target].shape
        full = np.repeat(np.repeat(scale, FP8_BLOCK, 0)[:rows], FP8_BLOCK, 1)[:, :cols]
        weights[target] = weights[target] * full
    return config, weights


def rope_parameters(config):
    """-> (inverse frequencies [dr/2], factor on the softmax scale)."""
    dim = config["qk_rope_head_dim"]
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = scaling.get("rope_theta", config.get("rope_theta"))
    freq = theta ** -(np.arange(0, dim, 2) / dim)
    if scaling.get("type", scaling.get("rope_type", "default")) != "yarn":
        return freq, 1.0

    def correction_dim(rotations):
        original = scaling["original_max_position_embeddings"]
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(correction_dim(scaling["beta_fast"])), 0)
    high = min(math.ceil(correction_dim(scaling["beta_slow"])), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    # mscale == mscale_all_dim in every published checkpoint, so cos and sin stay unscaled.
    assert scaling["mscale"] == scaling["mscale_all_dim"]
    mscale = 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1
    return freq / scaling["factor"] * ramp + freq * (1 - ramp), mscale**2


def rotate(x, angles, interleaved):
    """x [T, ..., dr] by angles [T, dr/2]; the result keeps the channel order of x."""
    half = x.shape[-1] // 2
    shape = (x.shape[0],) + (1,) * (x.ndim - 2) + (half,)
    cos, sin = np.cos(angles).reshape(shape), np.sin(angles).reshape(shape)
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    a, b = first * cos - second * sin, first * sin + second * cos
    return np.stack((a, b), -1).reshape(x.shape) if interleaved else np.concatenate((a, b), -1)


def rms_norm(x, weight, eps):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return weight * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) + bias


def silu(x):
    return x / (1 + np.exp(-x))


def project(x, module, name):
    return x @ module[name + ".weight"].T


def swiglu(x, mlp):
    hidden = silu(project(x, mlp, "gate_proj")) * project(x, mlp, "up_proj")
    return project(hidden, mlp, "down_proj")


def select(scores, top_k):
    """Causal top-k. -> (sorted position sets [T, k] padded with -1, smallest relative gap)."""
    num_tokens = len(scores)
    sets = np.full((num_tokens, min(top_k, num_tokens)), -1, np.int32)
    gap = math.inf
    for t in range(num_tokens):
        visible = scores[t, : t + 1]
        order = np.argsort(-visible, kind="stable")
        chosen = np.sort(order[:top_k])
        sets[t, : len(chosen)] = chosen
        if t + 1 > top_k:
            cut = visible[order[top_k - 1]] - visible[order[top_k]]
            gap = min(gap, cut / np.abs(visible).max())
    return sets, gap


def score_positions(x, latent, angles, indexer):
    """The lightning indexer: x [T, D], latent [T, ql] -> its taps."""
    config = indexer.config
    heads, dim, rope = config["index_n_heads"], config["index_head_dim"], config["qk_rope_head_dim"]
    interleaved = config.get("indexer_rope_interleave", False)
    q = project(latent, indexer, "wq_b").reshape(len(x), heads, dim)
    k = layer_norm(project(x, indexer, "wk"), indexer["k_norm.weight"], indexer["k_norm.bias"])
    q = np.concatenate((rotate(q[..., :rope], angles, interleaved), q[..., rope:]), -1)
    k = np.concatenate((rotate(k[..., :rope], angles, interleaved), k[..., rope:]), -1)
    head_weights = project(x, indexer, "weights_proj") * heads**-0.5
    scores = np.zeros((len(x), len(x)))
    for h in range(heads):
        scores += head_weights[:, h : h + 1] * np.maximum(q[:, h] @ k.T * dim**-0.5, 0)
    scores[np.triu_indices(len(x), 1)] = MASKED
    return {"index_q": q.reshape(len(x), -1), "index_k": k, "index_scores": scores}


def attend(q, latents, sets, attn):
    """q = (nope, rope) [T, H, .], latents = (c, kr), sets [T, k] -> input of o_proj [T, H*dv]."""
    config, num_tokens = attn.config, len(sets)
    (q_nope, q_rope), (c, k_rope) = q, latents
    heads, nope, rope = q_nope.shape[1], q_nope.shape[2], q_rope.shape[2]
    scale = (nope + rope) ** -0.5 * rope_parameters(config)[1]
    mask = np.full((num_tokens, num_tokens), -np.inf)
    for t, chosen in enumerate(sets):
        mask[t, chosen[chosen >= 0]] = 0
    kv = project(c, attn, "kv_b_proj").reshape(num_tokens, heads, nope + config["v_head_dim"])
    outputs = []
    for h in range(heads):
        scores = q_nope[:, h] @ kv[:, h, :nope].T + q_rope[:, h] @ k_rope.T
        scores = scores * scale + mask
        p = np.exp(scores - scores.max(-1, keepdims=True))
        outputs.append(p / p.sum(-1, keepdims=True) @ kv[:, h, nope:])
    return np.concatenate(outputs, -1)


def attention(x, angles, attn, shared_sets):
    """shared_sets: None on a full layer. -> (taps of the layer, sets, gap at the cut)."""
    config = attn.config
    heads, nope, rope = (
        config[key] for key in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim")
    )
    lora, eps = config["kv_lora_rank"], config["rms_norm_eps"]
    latent = rms_norm(project(x, attn, "q_a_proj"), attn["q_a_layernorm.weight"], eps)
    q = project(latent, attn, "q_b_proj").reshape(len(x), heads, nope + rope)
    q_rope = rotate(q[..., nope:], angles, interleaved=True)
    kv = project(x, attn, "kv_a_proj_with_mqa")
    c = rms_norm(kv[:, :lora], attn["kv_a_layernorm.weight"], eps)
    k_rope = rotate(kv[:, lora:], angles, interleaved=True)
    taps, sets, gap = {"c": c, "kr": k_rope}, shared_sets, math.inf
    if sets is None:
        index = score_positions(x, latent, angles, attn.below("indexer"))
        sets, gap = select(index["index_scores"], config["index_topk"])
        taps |= index | {"topk": sets}
    output = attend((q[..., :nope], q_rope), (c, k_rope), sets, attn)
    taps["attn_out"] = project(output, attn, "o_proj")
    return taps, sets, gap


def route(x, gate):
    """-> (ids [T, k] ascending, weights [T, k] in the same order, smallest gap of a choice)."""
    config = gate.config
    k, groups, kept = (config[key] for key in ("num_experts_per_tok", "n_group", "topk_group"))
    scores = 1 / (1 + np.exp(-(x @ gate["weight"].T)))
    by_group = (scores + gate["e_score_correction_bias"]).reshape(len(x), groups, -1)
    group_scores = np.sort(by_group, -1)[..., -2:].sum(-1)
    ranked = np.argsort(-group_scores, -1)
    gap = math.inf
    if kept < groups:
        ordered = np.take_along_axis(group_scores, ranked, -1)
        gap = (ordered[:, kept - 1] - ordered[:, kept]).min()
    masked = np.full_like(by_group, -np.inf)
    for t in range(len(x)):
        masked[t, ranked[t, :kept]] = by_group[t, ranked[t, :kept]]
    masked = masked.reshape(scores.shape)
    order = np.argsort(-masked, -1)
    ordered = np.take_along_axis(masked, order, -1)
    gap = min(gap, (ordered[:, k - 1] - ordered[:, k]).min())
    ids = np.sort(order[:, :k], -1)
    weights = np.take_along_axis(scores, ids, -1)  # without the bias
    weights = weights / (weights.sum(-1, keepdims=True) + 1e-20) * config["routed_scaling_factor"]
    return ids.astype(np.int32), weights, gap


def mixture(x, moe):
    ids, weights, gap = route(x, moe.below("gate"))
    out = swiglu(x, moe.below("shared_experts"))
    for expert in range(moe.config["n_routed_experts"]):
        rows, slots = np.nonzero(ids == expert)
        if len(rows):
            routed = swiglu(x[rows], moe.below(f"experts.{expert}"))
            out[rows] += weights[rows, slots, None] * routed
    return out, {"router_ids": ids, "router_weights": weights}, gap


def forward(config, weights, ids):
    """-> taps named as in the vector files, plus "index_gap" and "router_gap" (floats)."""
    eps, model = config["rms_norm_eps"], Module(config, weights)
    angles = np.arange(len(ids))[:, None] * rope_parameters(config)[0]
    h = weights["model.embed_tokens.weight"][ids]
    types = config.get("indexer_types") or ["full"] * config["num_hidden_layers"]
    taps, sets, index_gap, router_gap = {}, None, math.inf, math.inf
    for i, kind in enumerate(types):
        block = model.below(f"model.layers.{i}")
        x = rms_norm(h, block["input_layernorm.weight"], eps)
        shared_sets = sets if kind == "shared" else None
        layer, sets, gap = attention(x, angles, block.below("self_attn"), shared_sets)
        index_gap = min(index_gap, gap)
        h = h + layer["attn_out"]
        x = rms_norm(h, block["post_attention_layernorm.weight"], eps)
        if i < config["first_k_dense_replace"]:
            h = h + swiglu(x, block.below("mlp"))
        else:
            out, routed, gap = mixture(x, block.below("mlp"))
            h, layer, router_gap = h + out, layer | routed, min(router_gap, gap)
        layer["layer_out"] = h
        taps |= {f"layers.{i}.{name}": value for name, value in layer.items()}
    taps["logits"] = rms_norm(h, model["model.norm.weight"], eps) @ model["lm_head.weight"].T
    return taps | {"index_gap": index_gap, "router_gap": router_gap}

"""The tiny models: their config.json and their random weights."""

import numpy as np
import torch

FP8_BLOCK = 128
FP8_MAX = 448.0

# Keys of every case, with the published values where size does not matter.
COMMON = {
    "vocab_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "index_topk": 64,
    "index_n_heads": 8,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "use_cache": True,
    "bos_token_id": 0,
}

GLM = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "dtype": "float32",
    **COMMON,
    "rms_norm_eps": 1e-5,
    "n_group": 1,
    "topk_group": 1,
    "indexer_rope_interleave": True,
    "rope_interleave": True,
    "moe_router_dtype": "float32",
    "max_position_embeddings": 4096,
    "eos_token_id": [253, 254, 255],
    "pad_token_id": 253,
}

GLM_SHARE = {
    **GLM,
    "hidden_size": 64,
    "intermediate_size": 160,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "q_lora_rank": 48,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 48,
    "v_head_dim": 32,
    # As in the real files, `head_dim` is the nope width and must not be taken for the rope width.
    "head_dim": 32,
    "index_head_dim": 32,
    # The explicit list contradicts freq and offset on purpose: the list wins.
    "indexer_types": ["full", "full", "shared", "full", "shared", "shared"],
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "index_topk_pattern": None,
    "mlp_layer_types": ["dense"] + ["sparse"] * 5,
    "rope_parameters": {"rope_theta": 8000000.0, "rope_type": "default"},
}

GLM_FULL = {
    **GLM,
    "hidden_size": 96,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 48,
    "v_head_dim": 64,
    "head_dim": 32,
    "index_head_dim": 64,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
}

DSV32 = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "torch_dtype": "float32",
    **COMMON,
    "rms_norm_eps": 1e-6,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "q_lora_rank": 48,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "index_head_dim": 64,
    "max_position_embeddings": 10240,
    "rope_theta": 10000,
    # original_max_position_embeddings is 4096 in the real file. 256 moves the ramp to the channels
    # that 160 positions can tell apart, and keeps every test below it (the ramp always applies).
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 256,
        "type": "yarn",
    },
    "eos_token_id": 1,
}

GLM_FP8 = {
    **GLM,
    "dtype": "bfloat16",
    "hidden_size": 160,
    "intermediate_size": 192,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 96,
    # 128 + 16 rows of kv_a: one whole block of rows and a partial one, like 512 + 64.
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 48,
    "v_head_dim": 32,
    "head_dim": 32,
    "index_head_dim": 32,
    "indexer_types": ["full", "shared", "full"],
    "rope_parameters": {"rope_theta": 8000000.0, "rope_type": "default"},
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        "modules_to_not_convert": ["lm_head", "model.embed_tokens"],
    },
}

# name -> (config, how the weights are stored)
CASES = {
    "glm_share": (GLM_SHARE, "bf16 values in f32"),
    "glm_full": (GLM_FULL, "f32"),
    "dsv32": (DSV32, "f32"),
    "glm_fp8": (GLM_FP8, "fp8"),
}


def indexer_types(config):
    return config.get("indexer_types") or ["full"] * config["num_hidden_layers"]


def layer_shapes(config, i):
    """{name without the layer prefix: shape} of the matrices of layer i."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    q_lora, kv_lora, rope = (
        config["q_lora_rank"],
        config["kv_lora_rank"],
        config["qk_rope_head_dim"],
    )
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    shapes = {
        "self_attn.q_a_proj": (q_lora, hidden),
        "self_attn.q_b_proj": (heads * (nope + rope), q_lora),
        "self_attn.kv_a_proj_with_mqa": (kv_lora + rope, hidden),
        "self_attn.kv_b_proj": (heads * (nope + value), kv_lora),
        "self_attn.o_proj": (hidden, heads * value),
    }
    if indexer_types(config)[i] == "full":
        index_heads, index_dim = config["index_n_heads"], config["index_head_dim"]
        shapes["self_attn.indexer.wq_b"] = (index_heads * index_dim, q_lora)
        shapes["self_attn.indexer.wk"] = (index_dim, hidden)
        shapes["self_attn.indexer.weights_proj"] = (index_heads, hidden)
    if i < config["first_k_dense_replace"]:
        blocks = {"mlp": config["intermediate_size"]}
    else:
        shapes["mlp.gate"] = (config["n_routed_experts"], hidden)
        width = config["moe_intermediate_size"]
        blocks = {f"mlp.experts.{e}": width for e in range(config["n_routed_experts"])}
        blocks["mlp.shared_experts"] = width * config["n_shared_experts"]
    for block, width in blocks.items():
        shapes[f"{block}.gate_proj"] = shapes[f"{block}.up_proj"] = (width, hidden)
        shapes[f"{block}.down_proj"] = (hidden, width)
    return shapes


# Gains over 1/sqrt(fan_in). Sharp attention makes the selection matter; the rest keeps activations
# near 1, so that an absolute and a relative tolerance mean the same.
GAINS = {"q_b_proj": 1.5, "gate": 1.5, "lm_head": 2.0, "o_proj": 1.0, "down_proj": 0.5}


def random_weights(config, seed):
    """{published tensor name: float32 array}; the draw order is part of the format."""
    rng = np.random.default_rng(seed)
    hidden, weights = config["hidden_size"], {}

    def matrix(name, shape):
        gain = GAINS.get(name.rsplit(".", 1)[-1], 1.0) / np.sqrt(shape[1])
        weights[f"{name}.weight"] = gain * rng.standard_normal(shape)

    def norm(name, size):
        weights[f"{name}.weight"] = 1 + 0.25 * rng.standard_normal(size)

    weights["model.embed_tokens.weight"] = rng.standard_normal((config["vocab_size"], hidden))
    for i, kind in enumerate(indexer_types(config)):
        prefix = f"model.layers.{i}."
        for name, shape in layer_shapes(config, i).items():
            matrix(prefix + name, shape)
        norm(prefix + "input_layernorm", hidden)
        norm(prefix + "post_attention_layernorm", hidden)
        norm(prefix + "self_attn.q_a_layernorm", config["q_lora_rank"])
        norm(prefix + "self_attn.kv_a_layernorm", config["kv_lora_rank"])
        if kind == "full":
            k_norm = prefix + "self_attn.indexer.k_norm"
            norm(k_norm, config["index_head_dim"])
            weights[f"{k_norm}.bias"] = 0.3 * rng.standard_normal(config["index_head_dim"])
        if i >= config["first_k_dense_replace"]:
            # Large enough to change who is chosen, so that a bias that leaks into weights shows.
            bias = 0.2 * rng.standard_normal(config["n_routed_experts"])
            weights[prefix + "mlp.gate.e_score_correction_bias"] = bias
    norm("model.norm", hidden)
    matrix("lm_head", (config["vocab_size"], hidden))
    return {name: value.astype(np.float32) for name, value in weights.items()}


def is_fp8(name):
    """The published FP8 checkpoints quantise all matrices but these."""
    keep = ("norm", "embed_tokens", "lm_head", "mlp.gate.", "weights_proj")
    return name.endswith(".weight") and not any(part in name for part in keep)


def quantise(weight, rng):
    """[out, in] -> (float8 tensor, scale [ceil(out/128), ceil(in/128)])."""
    rows, cols = weight.shape
    grid = (-(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK))
    quantised = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scale = torch.empty(grid, dtype=torch.float32)
    for r in range(grid[0]):
        for c in range(grid[1]):
            block = np.s_[r * FP8_BLOCK : (r + 1) * FP8_BLOCK, c * FP8_BLOCK : (c + 1) * FP8_BLOCK]
            # Blocks of unlike magnitude: a scale taken from the neighbouring block must show.
            values = torch.from_numpy(weight[block] * np.float32(np.exp(rng.uniform(-0.6, 0.6))))
            scale[r, c] = values.abs().max() / FP8_MAX
            quantised[block] = (values / scale[r, c]).to(torch.float8_e4m3fn)
    return quantised, scale


def store(weights, storage, seed):
    """-> {name: torch tensor} as it goes into model.safetensors."""
    rng, stored = np.random.default_rng([seed, 1]), {}
    for name, value in weights.items():
        tensor = torch.from_numpy(value)
        if storage == "fp8" and is_fp8(name):
            stored[name], stored[f"{name}_scale_inv"] = quantise(value, rng)
        elif storage == "f32" or name.endswith("e_score_correction_bias"):
            stored[name] = tensor
        elif storage == "bf16 values in f32":
            stored[name] = tensor.bfloat16().float()
        else:
            stored[name] = tensor.bfloat16()
    return stored

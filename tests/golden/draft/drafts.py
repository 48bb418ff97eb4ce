"""The tiny drafts of `glm_share`: facts, config.json in each published style, random weights."""

import dataclasses

import numpy as np

VOCAB, TARGET_HIDDEN, TARGET_LAYERS, MASK_TOKEN = 256, 64, 6, 251
HIDDEN = 64  # of every draft: they use the embeddings and the head of the target


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a draft computes, whatever style its config.json is written in."""

    kind: str  # "dflash", "dflash2" or "dspark"
    block_rows: int
    taps: tuple = (0, 2, 4)  # target layers whose OUTPUT is tapped
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 96
    eps: float = 1e-5
    theta: float = 1e4
    is_causal: bool = False  # within the block
    window: int = 0  # 0: none; else the row at position p sees keys at positions > p - window
    conv_width: int = 0
    conv_group: int = 16
    rank: int = 0  # of the selector or of the Markov head
    top_k: int = 0
    multiplier: float = 1.0
    softcap: float = 0.0
    markov: str = ""  # "vanilla", "gated" or "rnn"
    confidence_with_markov: bool = True
    confidence_has_bias: bool = True
    anchor_first: bool = False  # row 0 proposes too

    @property
    def num_proposals(self):
        return self.block_rows if self.anchor_first else self.block_rows - 1

    @property
    def first_row(self):
        """The block row of the first proposal."""
        return 0 if self.anchor_first else 1


@dataclasses.dataclass(frozen=True)
class Case:
    spec: Spec
    config: dict
    storage: str  # "f32" or "bf16"
    prefix: str = ""  # of every tensor name
    aliases: tuple = ()  # (canonical beginning, published beginning)
    has_target_copies: bool = False  # ships embed_tokens and lm_head
    sts_temperatures: tuple = ()  # by proposal; not part of the checkpoint


def base_config(spec, architecture, storage):
    """The Qwen3 keys that all styles share."""
    return {
        "architectures": [architecture],
        "model_type": "qwen3",
        "dtype": {"f32": "float32", "bf16": "bfloat16"}[storage],
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.num_layers,
        "num_target_layers": TARGET_LAYERS,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.eps,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "use_cache": True,
    }


def layer_keys(spec):
    if not spec.window:
        types = ["full_attention"] * spec.num_layers
        return {"layer_types": types, "sliding_window": None, "use_sliding_window": False}
    types = ["sliding_attention"] * spec.num_layers
    return {"layer_types": types, "sliding_window": spec.window, "use_sliding_window": True}


def dflash_nested():
    spec = Spec(kind="dflash", block_rows=4)
    config = {
        **base_config(spec, "DFlashDraftModel", "f32"),
        **layer_keys(spec),
        "rope_theta": spec.theta,
        "block_size": spec.block_rows,
        "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": list(spec.taps)},
    }
    return Case(spec, config, "f32")


def dflash_sliding():
    """`dflash_config.causal` overrides what the layer types say; nothing is at the top level."""
    spec = Spec(kind="dflash", block_rows=4, window=8, taps=(1, 3, 4))
    config = {
        **base_config(spec, "DFlashDraftModel", "bf16"),
        **layer_keys(spec),
        "rope_theta": spec.theta,
        "block_size": spec.block_rows,
        "dflash_config": {
            "mask_token_id": MASK_TOKEN,
            "target_layer_ids": list(spec.taps),
            "causal": False,
        },
    }
    return Case(spec, config, "bf16")


def dflash_flat():
    """One draft layer, three taps: their counts have nothing to do with each other."""
    spec = Spec(kind="dflash", block_rows=6, num_layers=1, is_causal=True)
    config = {
        **base_config(spec, "DFlashDraftModel", "f32"),
        **layer_keys(spec),
        "rope_theta": spec.theta,
        "block_size": spec.block_rows,
        "is_causal": True,
        "mask_token_id": MASK_TOKEN,
        "target_layer_ids": list(spec.taps),
    }
    aliases = (("fc.", "encoder.fc."), ("hidden_norm.", "encoder.output_norm_enc."))
    return Case(spec, config, "f32", prefix="model.", aliases=aliases)


def dflash2_case(spec, storage, extra):
    inner = {
        "block_size": spec.block_rows,
        "conv_kernel_size": spec.conv_width,
        "conv_group_size": spec.conv_group,
        "mask_token_id": MASK_TOKEN,
        "selector_rank": spec.rank,
        "selector_top_k": spec.top_k,
        "target_layer_ids": list(spec.taps),
    }
    config = {
        **base_config(spec, "DFlash2DraftModel", storage),
        **layer_keys(spec),
        "rope_parameters": {"rope_theta": spec.theta, "rope_type": "default"},
        "is_causal": spec.is_causal,
        **extra,
        "dflash_config": inner,
    }
    return Case(spec, config, storage)


def dflash2_sliding():
    spec = Spec(
        kind="dflash2",
        block_rows=8,
        window=16,
        conv_width=2,
        rank=8,
        top_k=4,
        taps=(1, 3, 4),
        theta=1e6,
    )
    return dflash2_case(spec, "bf16", {})


def dflash2_full():
    """Three convolution taps, 5 rows, wide heads, scaled and capped logits."""
    spec = Spec(
        kind="dflash2",
        block_rows=5,
        num_kv_heads=1,
        head_dim=32,
        conv_width=3,
        rank=8,
        top_k=4,
        multiplier=1.25,
        softcap=8.0,
    )
    extra = {
        "output_multiplier": spec.multiplier,
        "final_logit_softcapping": spec.softcap,
    }
    return dflash2_case(spec, "f32", extra)


def dspark_deepspec(markov, storage, **options):
    """Everything at the top level, next to the Qwen3 keys."""
    copies = options.pop("has_target_copies", False)
    temperatures = options.pop("sts_temperatures", ())
    spec = Spec(kind="dspark", anchor_first=True, rank=8, markov=markov, **options)
    config = {
        **base_config(spec, "Qwen3DSparkModel", storage),
        **layer_keys(spec),
        "rope_theta": spec.theta,
        "block_size": spec.block_rows,
        "mask_token_id": MASK_TOKEN,
        "target_layer_ids": list(spec.taps),
        "num_anchors": 512,
        "markov_rank": spec.rank,
        "markov_head_type": markov,
        "enable_confidence_head": True,
        "confidence_head_with_markov": spec.confidence_with_markov,
    }
    return Case(
        spec, config, storage, has_target_copies=copies, sts_temperatures=temperatures
    )


def dspark_speculators(spec, storage):
    """The backbone in `transformer_layer_config`; taps numbered by the layer they are INPUT of."""
    inner = base_config(spec, "Qwen3ForCausalLM", storage) | layer_keys(spec)
    for key in ("architectures", "dtype", "num_target_layers"):
        del inner[key]
    config = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "dtype": {"f32": "float32", "bf16": "bfloat16"}[storage],
        "block_size": spec.block_rows,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in spec.taps],
        "draft_vocab_size": VOCAB,
        "mask_token_id": MASK_TOKEN,
        "markov_rank": spec.rank,
        "markov_head_type": spec.markov,
        "enable_confidence_head": True,
        "confidence_head_with_markov": spec.confidence_with_markov,
        "sample_from_anchor": spec.anchor_first,
        "sliding_window_non_causal": not spec.is_causal,
        "tie_word_embeddings": False,
        "transformer_layer_config": inner | {"rope_theta": spec.theta},
    }
    return Case(spec, config, storage)


SPECULATORS = Spec(
    kind="dspark",
    block_rows=4,
    num_kv_heads=4,
    window=8,
    is_causal=True,
    theta=8e6,
    rank=8,
    markov="vanilla",
    anchor_first=True,
    taps=(0, 2, 4),
)

CASES = {
    "dflash_full": dflash_nested(),
    "dflash_swa": dflash_sliding(),
    "dflash_causal": dflash_flat(),
    "dflash2": dflash2_sliding(),
    "dflash2_kw3": dflash2_full(),
    "dspark_vanilla": dspark_deepspec("vanilla", "f32", block_rows=3, has_target_copies=True),
    "dspark_gated": dspark_deepspec(
        "gated", "bf16", block_rows=4, confidence_with_markov=False
    ),
    "dspark_rnn": dspark_deepspec(
        "rnn", "f32", block_rows=5, sts_temperatures=(0.75, 1.0, 1.5, 2.0, 2.5)
    ),
    "dspark_speculators": dspark_speculators(SPECULATORS, "bf16"),
    "dspark_fill_in": dspark_speculators(
        dataclasses.replace(
            SPECULATORS,
            block_rows=5,
            anchor_first=False,
            is_causal=False,
            confidence_has_bias=False,
        ),
        "f32",
    ),
}


class Drawing:
    """Random weights under their canonical names; the draw order is part of the format."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.weights = {}

    def matrix(self, name, shape, gain):
        self.weights[name] = gain * self.rng.standard_normal(shape)

    def linear(self, name, shape, gain=1.0):
        self.matrix(name + ".weight", shape, gain / np.sqrt(shape[1]))

    def norm(self, name, size, around=1.0):
        self.weights[name + ".weight"] = around + 0.2 * self.rng.standard_normal(size)


def draw_layer(draw, spec, prefix):
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    draw.norm(prefix + "input_layernorm", HIDDEN)
    draw.norm(prefix + "post_attention_layernorm", HIDDEN)
    attention = prefix + "self_attn."
    draw.linear(attention + "q_proj", (query, HIDDEN))
    draw.linear(attention + "k_proj", (kv, HIDDEN))
    draw.linear(attention + "v_proj", (kv, HIDDEN))
    draw.linear(attention + "o_proj", (HIDDEN, query))
    # Sharp enough for it to matter which keys are seen.
    draw.norm(attention + "q_norm", spec.head_dim, around=1.4)
    draw.norm(attention + "k_norm", spec.head_dim, around=1.4)
    for name in ("gate_proj", "up_proj"):
        draw.linear(f"{prefix}mlp.{name}", (spec.intermediate, HIDDEN))
    draw.linear(prefix + "mlp.down_proj", (HIDDEN, spec.intermediate))
    if spec.conv_width:
        for name in ("attention_conv", "mlp_conv"):
            draw_convolution(draw, spec, f"{prefix}{name}.")


def draw_convolution(draw, spec, prefix):
    shape = (2, spec.conv_width, HIDDEN)
    draw.matrix(prefix + "base_kernel", shape, 0.15)
    draw.weights[prefix + "base_kernel"][:, 0] += 1
    groups = HIDDEN // spec.conv_group
    draw.matrix(prefix + "kernel_projection.weight", (2 * spec.conv_width * groups, HIDDEN), 0.05)


def draw_selector(draw, spec):
    draw.linear("candidate_selector.hidden_projection", (spec.rank, HIDDEN))
    draw.matrix("candidate_selector.predecessor_codebook", (VOCAB, spec.rank), 1.0)
    draw.matrix("candidate_selector.successor_codebook", (VOCAB, spec.rank), 0.6)


def draw_markov(draw, spec):
    draw.matrix("markov_head.markov_w1.weight", (VOCAB, spec.rank), 1.0)
    draw.matrix("markov_head.markov_w2.weight", (VOCAB, spec.rank), 0.8)
    if spec.markov == "gated":
        draw.linear("markov_head.gate_proj", (spec.rank, HIDDEN + spec.rank), 1.5)
        draw.matrix("markov_head.gate_proj.bias", (spec.rank,), 0.5)
    if spec.markov == "rnn":
        draw.linear("markov_head.joint_proj", (3 * spec.rank, 2 * spec.rank + HIDDEN), 1.5)
        draw.matrix("markov_head.joint_proj.bias", (3 * spec.rank,), 0.5)
    width = HIDDEN + (spec.rank if spec.confidence_with_markov else 0)
    draw.linear("confidence_head.proj", (1, width), 1.5)
    if spec.confidence_has_bias:
        draw.matrix("confidence_head.proj.bias", (1,), 1.0)


def random_weights(case, seed):
    """{canonical tensor name: float32 array}."""
    spec, draw = case.spec, Drawing(seed)
    draw.linear("fc", (HIDDEN, len(spec.taps) * TARGET_HIDDEN))
    draw.norm("hidden_norm", HIDDEN)
    for i in range(spec.num_layers):
        draw_layer(draw, spec, f"layers.{i}.")
    draw.norm("norm", HIDDEN)
    if spec.kind == "dflash2":
        draw_selector(draw, spec)
    if spec.kind == "dspark":
        draw_markov(draw, spec)
    return {name: value.astype(np.float32) for name, value in draw.weights.items()}


def published_name(case, name):
    for canonical, published in case.aliases:
        if name.startswith(canonical):
            name = published + name.removeprefix(canonical)
    return case.prefix + name

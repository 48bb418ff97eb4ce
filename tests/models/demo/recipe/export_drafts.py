"""Writes a draft as a Hugging Face directory in its published format, from a checkpoint of
train_drafts.py: config.json and model.safetensors (bf16). Embeddings and head are the target's and
are not written."""

import argparse
import json
from pathlib import Path

import torch

from draft_data import DEMO
from drafts import DFLASH2, DSPARK, MASK_TOKEN
from export import write_safetensors

NUM_TARGET_LAYERS = 8


def base_config(config, architecture):
    layer_type = "sliding_attention" if config.window else "full_attention"
    return {
        "architectures": [architecture],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_target_layers": NUM_TARGET_LAYERS,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": 8192,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "layer_types": [layer_type] * config.num_hidden_layers,
        "sliding_window": config.window or None,
        "use_sliding_window": bool(config.window),
    }


def dflash2_config():
    config = DFLASH2
    return {
        **base_config(config, "DFlash2DraftModel"),
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "is_causal": False,
        "dflash_config": {
            "block_size": config.block_rows,
            "conv_kernel_size": config.conv_width,
            "conv_group_size": config.conv_group,
            "mask_token_id": MASK_TOKEN,
            "selector_rank": config.rank,
            "selector_top_k": config.top_k,
            "target_layer_ids": list(config.taps),
        },
    }


def dspark_config():
    config = DSPARK
    return {
        **base_config(config, "Qwen3DSparkModel"),
        "rope_theta": config.rope_theta,
        "block_size": config.block_rows,
        "mask_token_id": MASK_TOKEN,
        "target_layer_ids": list(config.taps),
        "markov_rank": config.rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }


def mtp_config():
    """The target's own, in which the layer behind its last is announced."""
    config = json.loads((DEMO / "config.json").read_text())
    return config | {"num_nextn_predict_layers": 1, "index_share_for_mtp_iteration": False}


CONFIGS = {"dflash2": dflash2_config, "dspark": dspark_config, "mtp": mtp_config}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=tuple(CONFIGS))
    parser.add_argument("checkpoint", type=Path, help="draft_KIND.pt of train_drafts.py")
    parser.add_argument("directory", type=Path, help="output directory")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    tensors = torch.load(arguments.checkpoint, weights_only=True)
    if arguments.kind == "mtp":
        prefix = f"model.layers.{NUM_TARGET_LAYERS}."
        tensors = {prefix + name: tensor for name, tensor in tensors.items()}
    num_bytes = write_safetensors(arguments.directory / "model.safetensors", tensors)
    config = json.dumps(CONFIGS[arguments.kind](), indent=2)
    (arguments.directory / "config.json").write_text(config)
    print(f"wrote {arguments.directory}: {len(tensors)} tensors, {num_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""Writes a Hugging Face directory from a checkpoint of train.py.

model.safetensors (bf16; the correction bias of the routers stays f32), config.json,
generation_config.json, tokenizer_config.json and a copy of tokenizer.json. The same checkpoint
always gives the same bytes.
"""

import argparse
import dataclasses
import json
import shutil
import struct
from pathlib import Path

import torch

from model import ModelConfig

END_OF_TEXT = "<|endoftext|>"
HEADER_ALIGNMENT = 8  # of the safetensors format


def is_kept_f32(name):
    return name.endswith("e_score_correction_bias")


def tensor_bytes(name, tensor):
    """-> (safetensors dtype, little-endian bytes)."""
    if is_kept_f32(name):
        return "F32", tensor.float().contiguous().numpy().tobytes()
    return "BF16", tensor.bfloat16().contiguous().view(torch.int16).numpy().tobytes()


def write_safetensors(path, tensors):
    """In the order of the names; the safetensors package would group by dtype. -> data bytes."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in sorted(tensors.items()):
        dtype, blob = tensor_bytes(name, tensor)
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % HEADER_ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.writelines(blobs)
    return offset


def model_config(config, end_of_text):
    fields = dataclasses.asdict(config)
    rope_theta = fields.pop("rope_theta")
    return {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "dtype": "bfloat16",
        **fields,
        "rope_parameters": {"rope_theta": rope_theta, "rope_type": "default"},
        "indexer_rope_interleave": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "bos_token_id": None,
        "eos_token_id": [end_of_text],
        "pad_token_id": end_of_text,
        "initializer_range": 0.02,
        "use_cache": True,
    }


def generation_config(end_of_text):
    return {
        "eos_token_id": [end_of_text],
        "pad_token_id": end_of_text,
        "do_sample": True,
        "temperature": 0.8,
        "top_p": 0.95,
    }


def tokenizer_config(config):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
    }


def end_of_text_id(tokenizer_path):
    added = json.loads(tokenizer_path.read_text(encoding="utf-8"))["added_tokens"]
    return next(token["id"] for token in added if token["content"] == END_OF_TEXT)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint", type=Path, help="checkpoint_3_indexer.pt of train.py")
    parser.add_argument("directory", type=Path, help="output directory")
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of prepare.py")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    tokenizer_path = arguments.data / "tokenizer.json"
    config, end_of_text = ModelConfig(), end_of_text_id(tokenizer_path)
    tensors = torch.load(arguments.checkpoint, weights_only=True)
    num_bytes = write_safetensors(arguments.directory / "model.safetensors", tensors)
    documents = {
        "config.json": model_config(config, end_of_text),
        "generation_config.json": generation_config(end_of_text),
        "tokenizer_config.json": tokenizer_config(config),
    }
    for name, document in documents.items():
        (arguments.directory / name).write_text(json.dumps(document, indent=2))
    shutil.copyfile(tokenizer_path, arguments.directory / "tokenizer.json")
    print(f"wrote {arguments.directory}: {len(tensors)} tensors, {num_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""Makes the tiny models and their golden vectors. See README.md.

usage: python generate.py [case ...]      (all cases by default, next to this file)
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.torch import save_file

import cases
import oracle
import reference

HERE = Path(__file__).parent
NUM_TOKENS = 160
# Query rows of the taps that are too large to keep whole: the ends, and both sides of every
# multiple of 64 (the top-k of the models and the block of the cache).
ROWS = [0, 1, 2, 31, 47, 62, 63, 64, 65, 66, 79, 95, 111, 126, 127, 128, 129, 130, 143, 158, 159]
ROW_TAPS = ("index_q", "index_scores", "attn_out")
# Prompts of the greedy runs: one past top-k that decodes across 128, one that decodes across top-k.
GREEDY_PROMPTS = {"greedy": 110, "greedy_short": 52}
NUM_GREEDY = 24

MIN_INDEX_GAP = 3e-5  # relative to the largest score of the row
MIN_ROUTER_GAP = 1e-5  # of a probability
MIN_MARGIN = 1e-2  # between the best two logits of a greedy step
MIN_EFFECT = 0.05  # rms of (sparse - dense) logits over rms of logits, rows past top-k
MAX_ERROR = 1e-6  # oracle against reference, relative to the largest value of a tap


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model on disk, read back by the reference, and the reference's taps of its sequence."""

    seed: int
    tensors: dict
    config: dict
    weights: dict
    ids: np.ndarray
    taps: dict


def is_clear(taps):
    return taps["index_gap"] > MIN_INDEX_GAP and taps["router_gap"] > MIN_ROUTER_GAP


def effect_of_selection(candidate):
    config = {**candidate.config, "index_topk": NUM_TOKENS}
    rows = np.s_[candidate.config["index_topk"] :]
    dense = reference.forward(config, candidate.weights, candidate.ids)["logits"][rows]
    sparse = candidate.taps["logits"][rows]
    return np.sqrt(((sparse - dense) ** 2).mean() / (sparse**2).mean())


def greedy(model, modeling, prompt):
    """Full recompute at each step. -> (tokens, smallest margin)."""
    ids, margin = list(prompt), np.inf
    for _ in range(NUM_GREEDY):
        last = oracle.logits(model, modeling, ids)[-1]
        best, second = np.argsort(-last)[:2]
        margin = min(margin, last[best] - last[second])
        ids.append(int(best))
    return ids[len(prompt) :], margin


def greedy_run(model, modeling, candidate, rng, length):
    """A prompt whose continuation hangs on no near tie, neither of logits nor of a selection,
    and meets no end-of-sequence token."""
    eos = candidate.config["eos_token_id"]
    eos = set(eos if isinstance(eos, list) else [eos])
    while True:
        prompt = rng.integers(0, candidate.config["vocab_size"], length).tolist()
        tokens, margin = greedy(model, modeling, prompt)
        taps = reference.forward(candidate.config, candidate.weights, prompt + tokens)
        lively = len(set(tokens)) >= NUM_GREEDY // 2 and not eos & set(tokens)
        if lively and margin > MIN_MARGIN and is_clear(taps):
            assert taps["logits"][length - 1 : -1].argmax(-1).tolist() == tokens
            return prompt, tokens, margin


def save(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file leaves it private to the user


def write_model(path, config, tensors):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save(tensors, path / "model.safetensors")


def write_bf16_twin(path, config, tensors):
    """The same values in bf16: the vectors of the float32 directory hold for it unchanged."""
    twin = {}
    for name, tensor in tensors.items():
        keep = name.endswith("e_score_correction_bias")
        twin[name] = tensor if keep else tensor.bfloat16()
        assert torch.equal(twin[name].float(), tensor)
    write_model(path, {**config, "dtype": "bfloat16"}, twin)


def find_candidate(name, path):
    """The first seed without a near tie at a cut. Leaves its model in `path`."""
    config, storage = cases.CASES[name]
    for seed in range(1, 1000):
        tensors = cases.store(cases.random_weights(config, seed), storage, seed)
        write_model(path, config, tensors)
        loaded_config, weights = reference.load_directory(path)
        ids = np.random.default_rng([seed, 2]).integers(0, config["vocab_size"], NUM_TOKENS)
        taps = reference.forward(loaded_config, weights, ids)
        if is_clear(taps):
            return Candidate(seed, tensors, loaded_config, weights, ids, taps)
    raise RuntimeError(f"{name}: no usable seed")


def compare(taps, expected):
    """The oracle's taps against the reference's. -> largest relative error."""
    expected = {k: v for k, v in expected.items() if k not in ("index_gap", "router_gap")}
    assert taps.keys() == expected.keys(), taps.keys() ^ expected.keys()
    worst = 0.0
    for name, value in expected.items():
        assert taps[name].shape == value.shape, (name, taps[name].shape, value.shape)
        if value.dtype == np.int32:
            assert np.array_equal(taps[name], value), name
            continue
        valid = value > reference.MASKED
        assert np.array_equal(valid, taps[name] > reference.MASKED), name
        error = np.abs(taps[name][valid] - value[valid]).max() / np.abs(value[valid]).max()
        assert error < MAX_ERROR, (name, error)
        worst = max(worst, error)
    return worst


def vectors_of(taps, ids):
    """Taps -> {name: torch tensor} as stored."""
    out = {"input_ids": ids.astype(np.int32), "rows": np.array(ROWS, np.int32)}
    for name, value in taps.items():
        value = value[ROWS] if name.rsplit(".", 1)[-1] in ROW_TAPS else value
        out[name] = value if value.dtype == np.int32 else value.astype(np.float32)
    return out


def check_prefixes(model, modeling, ids, expected):
    """Causal: a shorter sequence is a prefix, so that one sequence serves all lengths."""
    for length in (63, 64, 65, 127, 128, 129):
        logits = oracle.logits(model, modeling, ids[:length].tolist())
        assert np.allclose(logits, expected[:length], rtol=0, atol=1e-9), length


def generate(name):
    path = HERE / name
    candidate = find_candidate(name, path)
    if name == "glm_share":
        write_bf16_twin(HERE / "glm_share_bf16", candidate.config, candidate.tensors)
    model, modeling = oracle.load(path)
    taps = oracle.forward(model, modeling, candidate.ids.tolist())
    error = compare(taps, candidate.taps)
    check_prefixes(model, modeling, candidate.ids, taps["logits"])
    effect = effect_of_selection(candidate)
    assert effect > MIN_EFFECT, effect
    vectors = vectors_of(taps, candidate.ids)
    rng = np.random.default_rng([candidate.seed, 3])
    for run, length in GREEDY_PROMPTS.items():
        prompt, tokens, margin = greedy_run(model, modeling, candidate, rng, length)
        vectors[f"{run}_prompt"] = np.array(prompt, np.int32)
        vectors[f"{run}_tokens"] = np.array(tokens, np.int32)
        print(f"{name}: {run}: smallest margin {margin:.4f}, {len(set(tokens))} distinct tokens")
    (HERE / "vectors").mkdir(exist_ok=True)
    stored = {key: torch.from_numpy(np.ascontiguousarray(v)) for key, v in vectors.items()}
    save(stored, HERE / "vectors" / f"{name}.safetensors")
    index_gap, router_gap = candidate.taps["index_gap"], candidate.taps["router_gap"]
    print(
        f"{name}: seed {candidate.seed}; oracle against reference: {error:.1e} relative;"
        f" selection moves the logits by {effect:.0%}; smallest gaps: index {index_gap:.1e},"
        f" router {router_gap:.1e}; rms of logits {np.sqrt((taps['logits'] ** 2).mean()):.2f}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[1:] or cases.CASES:
        generate(case)

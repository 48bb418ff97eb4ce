"""Makes the tiny drafts and their golden vectors. See README.md.

usage: python generate.py [case ...]      (all cases by default, next to this file)
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "model"
sys.path.append(str(MODEL))

import batched  # noqa: E402
import drafts  # noqa: E402
import mtp  # noqa: E402
import naive  # noqa: E402
import oracle  # noqa: E402  (in the folder above)

TARGET = "glm_share"
NUM_TOKENS = 72
# Positions of the anchors: one token of context, around windows, both sides of a multiple of 64.
ANCHORS = (1, 5, 13, 20, 63, 64, 65, 71)
MIN_MARGIN = 1e-3  # between choices that are to be equal in f32
MAX_ERROR = 1e-6  # batched against naive, relative to the largest value of a tap


def save(tensors, path):
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file leaves it private to the user


def write_directory(path, config, tensors):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(tensors, path / "model.safetensors")


class Target:
    """The tapped target: `glm_share` on the first tokens of its own golden sequence."""

    def __init__(self):
        stored = load_arrays(MODEL / "vectors" / f"{TARGET}.safetensors")
        self.ids = stored["input_ids"][:NUM_TOKENS].astype(np.int64)
        model, modeling = oracle.load(MODEL / TARGET)
        self.taps = oracle.forward(model, modeling, self.ids.tolist())
        self.embeddings = model.model.embed_tokens.weight.detach()
        self.head = model.lm_head.weight.detach()

    def features(self, layers):
        """-> [T, m * Ht] float64: outputs of the layers, side by side."""
        return np.concatenate([self.taps[f"layers.{i}.layer_out"] for i in layers], -1)


def stored_tensors(case, seed):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case.storage]
    weights = drafts.random_weights(case, seed)
    return {name: torch.from_numpy(value).to(dtype) for name, value in weights.items()}


def run_naive(case, weights, target):
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    draft = naive.Draft(case.spec, arrays, target.embeddings.numpy(), target.head.numpy())
    features, layers = draft.context(target.features(case.spec.taps))
    proposals = []
    for first_position in ANCHORS:
        anchor = int(target.ids[first_position])
        hidden = draft.block(layers, anchor, drafts.MASK_TOKEN, first_position)
        proposals.append(draft.propose(hidden, anchor))
    taps = {name: np.stack([p[name] for p in proposals]) for name in proposals[0]}
    return context_taps(features, layers) | taps


def run_batched(case, weights, target):
    draft = batched.Draft(case.spec, weights, target.embeddings, target.head)
    features, layers = draft.context(torch.from_numpy(target.features(case.spec.taps)))
    positions = torch.tensor(ANCHORS)
    anchors = torch.from_numpy(target.ids)[positions]
    hidden = draft.block(layers, anchors, drafts.MASK_TOKEN, positions)
    proposals = {name: value.numpy() for name, value in draft.propose(hidden, anchors).items()}
    layers = [(keys.numpy(), values.numpy()) for keys, values in layers]
    return context_taps(features.numpy(), layers) | proposals


def context_taps(features, layers):
    taps = {"c": features}
    for i, (keys, values) in enumerate(layers):
        taps[f"layers.{i}.k"], taps[f"layers.{i}.v"] = keys, values
    return taps


def compare(actual, expected):
    """-> largest relative error."""
    assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
    worst = 0.0
    for name, value in expected.items():
        assert actual[name].shape == value.shape, (name, actual[name].shape, value.shape)
        if value.dtype == np.int32:
            assert np.array_equal(actual[name], value), name
            continue
        error = np.abs(actual[name] - value).max() / np.abs(value).max()
        assert error < MAX_ERROR, (name, error)
        worst = max(worst, error)
    return worst


def margin_of(values, count=1):
    """Smallest difference of neighbours among the largest count + 1 of each row."""
    ordered = -np.sort(-values, -1)[..., : count + 1]
    return (ordered[..., :-1] - ordered[..., 1:]).min()


def smallest_margin(case, taps):
    if case.spec.kind == "dflash2":
        scaled = taps["logits"] * case.spec.multiplier
        if case.spec.softcap:
            scaled = case.spec.softcap * np.tanh(scaled / case.spec.softcap)
        return min(margin_of(scaled, case.spec.top_k), margin_of(taps["edge_scores"]))
    return margin_of(taps["corrected" if case.spec.kind == "dspark" else "logits"])


def is_lively(case, taps):
    """The drafted tokens vary, and what the last stage adds changes some of them."""
    tokens = taps["tokens"]
    plain = taps["logits"].argmax(-1)
    num_changed = np.count_nonzero(tokens != plain)
    is_varied = len(set(tokens.flatten().tolist())) >= tokens.size // 4
    return is_varied and (case.spec.kind == "dflash" or num_changed >= 3)


def finish(case, taps, target):
    """-> the taps as they are stored."""
    spec, taps = case.spec, dict(taps)
    if spec.kind == "dspark":
        scores = taps.pop("confidence_score")
        taps["confidence"] = 1 / (1 + np.exp(-scores))
        if case.sts_temperatures:
            table = np.array(case.sts_temperatures)
            taps["sts_temperatures"] = table
            taps["confidence_sts"] = 1 / (1 + np.exp(-scores / table))
    taps["input_ids"] = target.ids.astype(np.int32)
    taps["anchors"] = np.array(ANCHORS, np.int32)
    taps["taps"] = target.features(spec.taps)
    return vectors_of(taps)


def vectors_of(taps):
    stored = {}
    for name, value in taps.items():
        if name.endswith((".k", ".v")):
            value = value.reshape(len(value), -1)
        narrow = np.float32 if value.dtype == np.float64 else np.int32
        stored[name] = torch.from_numpy(np.ascontiguousarray(value.astype(narrow)))
    return stored


def write_draft(name, case, tensors, target):
    published = {drafts.published_name(case, key): value for key, value in tensors.items()}
    if case.has_target_copies:
        dtype = next(iter(tensors.values())).dtype
        published["embed_tokens.weight"] = target.embeddings.to(dtype)
        published["lm_head.weight"] = target.head.to(dtype)
    write_directory(HERE / name, case.config, published)


def generate(name, target):
    case = drafts.CASES[name]
    for seed in range(1, 1000):
        tensors = stored_tensors(case, seed)
        weights = {key: tensor.double() for key, tensor in tensors.items()}
        taps = run_batched(case, weights, target)
        margin = smallest_margin(case, taps)
        if margin > MIN_MARGIN and is_lively(case, taps):
            break
    else:
        raise RuntimeError(f"{name}: no usable seed")
    error = compare(taps, run_naive(case, weights, target))
    write_draft(name, case, tensors, target)
    save(finish(case, taps, target), HERE / "vectors" / f"{name}.safetensors")
    distinct = len(set(taps["tokens"].flatten().tolist()))
    changed = np.count_nonzero(taps["tokens"] != taps["logits"].argmax(-1))
    print(
        f"{name}: seed {seed}; batched against naive: {error:.1e} relative; smallest margin"
        f" {margin:.1e}; {taps['tokens'].size} tokens, {distinct} distinct, {changed} changed by"
        f" the last stage; rms of logits {np.sqrt((taps['logits'] ** 2).mean()):.2f}",
        flush=True,
    )


def generate_mtp(name):
    seed, tensors, ids, taps, margin = mtp.find(name, MIN_MARGIN)
    error = compare(mtp.with_class(name, tensors, ids), taps)
    write_directory(HERE / name, mtp.CASES[name][0], tensors)
    stored = taps | {"input_ids": ids, "anchors": np.array(mtp.ANCHORS)}
    save(vectors_of(stored), HERE / "vectors" / f"{name}.safetensors")
    print(
        f"{name}: seed {seed}; class against reference: {error:.1e} relative; smallest margin"
        f" {margin:.1e}; {taps['tokens'].size} tokens, {len(np.unique(taps['tokens']))} distinct",
        flush=True,
    )


def main(names):
    torch.set_num_threads(1)
    (HERE / "vectors").mkdir(exist_ok=True)
    target = Target()
    for name in names or [*drafts.CASES, *mtp.CASES]:
        if name in mtp.CASES:
            generate_mtp(name)
        else:
            generate(name, target)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Makes the toy target, whose distributions can be enumerated, and its drafts. See README.md.

usage: python generate.py      (writes target, dflash, dflash2 and dspark next to this file)
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "draft"), str(HERE.parent / "model")]

import batched  # noqa: E402  (in the folders above)
import cases  # noqa: E402
import drafts  # noqa: E402
import mtp  # noqa: E402
import reference  # noqa: E402

PROMPT = (3, 1, 4, 1, 5, 2)
VOCAB, HIDDEN, NUM_LAYERS, MASK_TOKEN = 8, 32, 3, 7
NUM_PROPOSALS = 3
NUM_SEQUENCES, NUM_SAMPLED = 160, 10
SEED = 1

TARGET = {
    **mtp.GLM,
    "dtype": "float32",
    "vocab_size": VOCAB,
    "eos_token_id": [7],
    "pad_token_id": 7,
    "max_position_embeddings": 512,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": NUM_LAYERS,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "head_dim": 16,
    "index_n_heads": 2,
    "index_head_dim": 32,
    "index_topk": 4,
    "num_nextn_predict_layers": 1,
}

# Of a matrix, over those of ../model: logits with a deviation of about 1.3, and hidden states that
# the newest token decides about half of, so that there is something for drafts to know.
GAINS = {"lm_head": 0.65, "o_proj": 0.7, "down_proj": 0.7}
MTP_GAIN = 0.2  # of what the MTP layer adds to its input
# Of training: enough for drafts to be accepted, too few for them to agree with the target.
NUM_STEPS = {"dflash": 480, "dflash2": 80, "dspark": 80}


def write_directory(path, config, tensors):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    file = path / "model.safetensors"
    save_file(contiguous, file, metadata={"format": "pt"})
    file.chmod(0o644)  # save_file leaves it private to the user


def scaled_drafts():
    """`drafts` takes the sizes of its target from these."""
    drafts.VOCAB, drafts.MASK_TOKEN = VOCAB, MASK_TOKEN
    drafts.HIDDEN = drafts.TARGET_HIDDEN = HIDDEN
    drafts.TARGET_LAYERS = NUM_LAYERS


# Of every draft.
SIZES = {
    "taps": (0, 1),
    "num_heads": 2,
    "num_kv_heads": 1,
    "num_layers": 1,
    "intermediate": 32,
}


def dflash_case():
    spec = drafts.Spec(kind="dflash", block_rows=NUM_PROPOSALS + 1, **SIZES)
    config = {
        **drafts.base_config(spec, "DFlashDraftModel", "f32"),
        **drafts.layer_keys(spec),
        "rope_theta": spec.theta,
        "block_size": spec.block_rows,
        "dflash_config": {
            "mask_token_id": MASK_TOKEN,
            "target_layer_ids": list(spec.taps),
        },
    }
    return drafts.Case(spec, config, "f32")


def dflash2_case():
    spec = drafts.Spec(
        kind="dflash2",
        block_rows=NUM_PROPOSALS + 1,
        conv_width=2,
        conv_group=8,
        rank=4,
        top_k=4,
        **SIZES,
    )
    return drafts.dflash2_case(spec, "f32", {})


def draft_cases():
    return {
        "dflash": dflash_case(),
        "dflash2": dflash2_case(),
        "dspark": drafts.dspark_deepspec(
            "vanilla", "f32", block_rows=NUM_PROPOSALS, **SIZES
        ),
    }


# ---- The target ---------------------------------------------------------------------------------


def target_weights():
    weights = mtp.random_weights(TARGET, False, SEED)
    own = f"model.layers.{NUM_LAYERS}."
    for name in weights:
        kind = name.removesuffix(".weight").rsplit(".", 1)[-1]
        weights[name] *= np.float32(GAINS.get(kind, 1))
        if name.startswith(own) and kind in ("o_proj", "down_proj"):
            weights[name] *= np.float32(MTP_GAIN)
    for name in mtp.NORMS:
        weights[f"{own}{name}.weight"] = np.ones(HIDDEN, np.float32)
    weights[f"{own}shared_head.norm.weight"] = weights["model.norm.weight"].copy()
    return weights


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Sample:
    """A sequence that the target drew, with what drafts see of it and should say."""

    def __init__(self, weights, rng):
        ids = list(PROMPT)
        for _ in range(NUM_SAMPLED):
            logits = reference.forward(TARGET, weights, np.array(ids))["logits"][-1]
            ids.append(int(rng.choice(VOCAB, p=softmax(logits))))
        self.ids = np.array(ids)
        taps = reference.forward(TARGET, weights, self.ids)
        self.probabilities = softmax(taps["logits"])
        features = [taps[f"layers.{i}.layer_out"] for i in (0, 1)]
        self.features = torch.from_numpy(np.concatenate(features, -1))
        self.last = taps[f"layers.{NUM_LAYERS - 1}.layer_out"]


def fit_mtp(weights, samples):
    """eh_proj: least squares for the last hidden state of the next position."""
    eps, embed = TARGET["rms_norm_eps"], weights["model.embed_tokens.weight"].astype(np.float64)
    ones, norm = np.ones(HIDDEN), weights["model.norm.weight"].astype(np.float64)
    inputs, wanted = [], []
    for sample in samples:
        hidden = reference.rms_norm(sample.last, norm, eps)
        e = reference.rms_norm(embed[sample.ids[1:]], ones, eps)
        g = reference.rms_norm(hidden[:-1], ones, eps)
        inputs.append(np.concatenate((e, g), -1))
        wanted.append(sample.last[1:])
    x, y = np.concatenate(inputs), np.concatenate(wanted)
    gram = x.T @ x + 1e-2 * len(x) * np.eye(x.shape[1])
    name = f"model.layers.{NUM_LAYERS}.eh_proj.weight"
    weights[name] = np.linalg.solve(gram, x.T @ y).T.astype(np.float32)


# ---- The drafts ---------------------------------------------------------------------------------


def conditional_logits(draft, y, before):
    """y [A, G, H], tokens before the proposals [A, G] -> [A, G, V]."""
    spec, logits = draft.spec, y @ draft.head.T
    if spec.kind == "dflash2":
        e = draft.linear(y, "candidate_selector.hidden_projection")
        predecessor = draft.w["candidate_selector.predecessor_codebook"][before]
        return logits + (predecessor * e) @ draft.w["candidate_selector.successor_codebook"].T
    if spec.kind == "dspark":
        e = functional.embedding(before, draft.w["markov_head.markov_w1.weight"])
        return logits + draft.linear(e, "markov_head.markov_w2")
    return logits


def loss_of(draft, sample):
    """-> (loss, mean probability that a proposal is accepted) of every anchor of a sequence."""
    positions = torch.arange(len(PROMPT), len(sample.ids) - NUM_PROPOSALS)
    ids = torch.from_numpy(sample.ids)
    hidden = draft.block(
        draft.context(sample.features)[1], ids[positions], MASK_TOKEN, positions
    )
    y = hidden[:, draft.spec.first_row :]
    after = positions[:, None] + torch.arange(1, NUM_PROPOSALS + 1)
    wanted = torch.from_numpy(sample.probabilities)[after - 1]
    before = ids[after - 1]
    q = conditional_logits(draft, y, before).softmax(-1)
    loss = -(wanted * q.log()).sum(-1).mean()
    accepted = torch.minimum(q.detach(), wanted).sum(-1)
    if draft.spec.kind == "dflash":
        accepted = wanted.gather(-1, q.argmax(-1, keepdim=True))[..., 0]
    if draft.spec.kind == "dspark":
        e = draft.w["markov_head.markov_w1.weight"][before]
        score = draft.linear(torch.cat((y, e), -1), "confidence_head.proj")[..., 0]
        loss = loss + functional.binary_cross_entropy_with_logits(score, accepted)
    return loss, accepted.mean(0)


def train(case, weights, samples, num_steps):
    torch.manual_seed(SEED)
    arrays = drafts.random_weights(case, SEED)
    trained = {name: torch.from_numpy(value).double() for name, value in arrays.items()}
    for value in trained.values():
        value.requires_grad_(True)
    table = torch.from_numpy(weights["model.embed_tokens.weight"]).double()
    head = torch.from_numpy(weights["lm_head.weight"]).double()
    draft = batched.Draft(case.spec, trained, table, head)
    optimizer = torch.optim.Adam(trained.values(), lr=3e-3)
    rates = []
    for step in range(num_steps):
        optimizer.zero_grad()
        loss, accepted = loss_of(draft, samples[step % len(samples)])
        loss.backward()
        optimizer.step()
        rates.append(accepted.numpy())
    print(f"accepted {np.mean(rates[-40:], 0).round(2)}", flush=True)
    return {name: value.detach().float() for name, value in trained.items()}


def mtp_acceptance(weights, samples):
    arrays = {name: value.astype(np.float64) for name, value in weights.items()}
    layer, rates = mtp.Naive(TARGET, arrays), []
    for sample in samples:
        known = layer.inputs(layer.hidden(sample.ids)[:-1], sample.ids[1:].tolist(), 0)
        tokens = layer.logits(layer.run(known, None)["carry"]).argmax(-1)
        after = np.arange(len(PROMPT), len(sample.ids))
        rates.append(sample.probabilities[after, tokens[after - 1]].mean())
    return np.mean(rates)


def main():
    torch.set_num_threads(1)
    scaled_drafts()
    weights = target_weights()
    rng = np.random.default_rng(SEED)
    arrays = {name: value.astype(np.float64) for name, value in weights.items()}
    samples = [Sample(arrays, rng) for _ in range(NUM_SEQUENCES)]
    p = np.concatenate([sample.probabilities[len(PROMPT) - 1 :] for sample in samples])
    print(f"target: largest probability {p.max(-1).mean():.2f} on average, smallest {p.min():.1e}")
    fit_mtp(weights, samples)
    print(f"mtp: accepted {mtp_acceptance(weights, samples[:20]):.2f}")
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    write_directory(HERE / "target", TARGET, tensors)
    for name, case in draft_cases().items():
        print(name, end=": ")
        tensors = train(case, weights, samples, NUM_STEPS[name])
        write_directory(HERE / name, case.config, tensors)


if __name__ == "__main__":
    main()

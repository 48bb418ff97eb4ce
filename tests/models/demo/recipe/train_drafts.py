"""Trains a draft of the demo target on the shards of draft_data.py, within a time budget.

The target's distribution at every position is the label: cross-entropy to it, and the share of it
that a proposal misses (which is what acceptance loses), less for later proposals. DFlash2 trains
its selector on the candidates with the true token before each; DSpark its Markov head likewise,
and its confidence head on the acceptance of each position; MTP trains three iterations, and its
indexer on its own attention.

Shards may still be written while this runs. Writes a checkpoint every few minutes.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch.nn import functional

import draft_data
from drafts import Dflash2Draft, DsparkDraft, MtpDraft
from train import Phase, run_phase

SEQUENCES = {"dflash2": 12, "dspark": 8, "mtp": 4}  # per step
NUM_TOKENS = {"dflash2": 288, "dspark": 512, "mtp": 384}  # of each, from a random place
NUM_ANCHORS = 24  # per sequence
FIRST_ANCHOR = 4
DECAY = 4.0  # proposals over which the weight of the loss falls by e
CROSS_ENTROPY_SHARE = 0.3
MTP_ITERATIONS = 3
MTP_LIKE_LAYER = 6  # the target's last layer with an indexer: shape and first weights
CHECKPOINT_S = 240


class Samples:
    """Random sequences of the shards that are there."""

    def __init__(self, directory, seed):
        self.directory, self.random = directory, np.random.default_rng(seed)
        self.handles = {}

    def batch(self, num_sequences, num_tokens):
        """-> (ids [N, T], states [N, T, .]), a quarter of them from each of four shards."""
        for path in self.directory.glob("*.safetensors"):
            if path not in self.handles:
                self.handles[path] = safe_open(path, "pt")
        paths = sorted(self.handles)
        count, ids, states = max(num_sequences // 4, 1), [], []
        for shard in self.random.integers(0, len(paths), num_sequences // count):
            handle = self.handles[paths[shard]]
            num_rows, width = handle.get_slice("ids").get_shape()
            begin = int(self.random.integers(0, num_rows - count + 1))
            place = int(self.random.integers(0, width - num_tokens + 1))
            cut = np.s_[begin : begin + count, place : place + num_tokens]
            ids.append(handle.get_slice("ids")[cut].long())
            states.append(handle.get_slice("states")[cut])
        return torch.cat(ids), torch.cat(states)


class Mismatch(torch.autograd.Function):
    """CROSS_ENTROPY_SHARE * cross-entropy + overlap_share * (1 - overlap) of each row.

    By hand because most of the time goes into passes over [rows, V]. With q the softmax of the
    logits, p the target's, and m the mask of q < p: the gradient is
    CROSS_ENTROPY_SHARE * (q - p) + overlap_share * q * (sum(m q) - m).
    """

    @staticmethod
    def forward(ctx, logits, target_logits, overlap_share):
        """logits, target_logits [..., V] -> (loss [...], overlap [...] or zeros, p [..., V])."""
        q = logits.softmax(-1, torch.float32)
        p = target_logits.softmax(-1, torch.float32)
        agreed = (p[..., None, :] @ logits.float()[..., None])[..., 0, 0]
        loss = CROSS_ENTROPY_SHARE * (logits.logsumexp(-1).float() - agreed)
        overlap = torch.zeros_like(loss)
        gradient = torch.sub(q, p).mul_(CROSS_ENTROPY_SHARE)
        if overlap_share:
            overlap = torch.minimum(p, q).sum(-1)
            q_low = q * (q < p)
            share = q_low.sum(-1, keepdim=True)
            gradient.add_(q.mul_(share).sub_(q_low), alpha=overlap_share)
            loss = loss + overlap_share * (1 - overlap)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(overlap, p)
        return loss, overlap, p

    @staticmethod
    def backward(ctx, of_loss, of_overlap, of_p):
        (gradient,) = ctx.saved_tensors
        return gradient * of_loss[..., None], None, None


def weighted(losses):
    """losses [..., G] -> scalar; later proposals count less."""
    weights = torch.exp(-torch.arange(losses.shape[-1]) / DECAY)
    return (losses * weights).sum(-1).mean() / weights.sum()


class BlockTrainer:
    """Loss of a DFlash2 or DSpark draft on one batch."""

    def __init__(self, draft, target, samples):
        self.draft, self.target, self.random = draft, target, samples.random
        self.hidden = target.config.hidden_size
        self.embeddings, self.head = target.model.embed_tokens.weight, target.lm_head.weight
        self.head = self.head.bfloat16()
        self.accepted = None  # mean overlap by proposal, smoothed

    def blocks(self, ids):
        """-> first positions [N, A], and ids of each block and what follows it [N, A, B + 1]."""
        limit = ids.shape[1] - self.draft.config.block_rows - 1
        first = self.random.integers(FIRST_ANCHOR, limit, (len(ids), NUM_ANCHORS))
        first = torch.from_numpy(first)
        offsets = first[..., None] + torch.arange(self.draft.config.block_rows + 1)
        return first, offsets

    def note(self, overlap):
        by_proposal = overlap.detach().flatten(0, -2).mean(0)
        old = by_proposal if self.accepted is None else self.accepted
        self.accepted = 0.98 * old + 0.02 * by_proposal

    def loss(self, batch):
        ids, states = batch
        num_proposals = self.draft.config.num_proposals
        first, offsets = self.blocks(ids)
        rows = torch.arange(len(ids))[:, None, None]
        tokens = ids[rows, offsets]
        labels = states[rows, offsets[..., :num_proposals], -self.hidden :]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            taps = states[..., : -self.hidden]
            y = self.draft(taps, tokens[..., 0], first, self.embeddings)
            y = y[..., -num_proposals:, :]
            logits = functional.linear(y.bfloat16(), self.head)
            wanted = functional.linear(labels, self.head)
            previous = tokens[..., :num_proposals]
            if self.draft.config.kind == "dflash2":
                return self.selector_loss(y, logits, wanted, previous)
            return self.markov_loss(y, logits, wanted, previous)

    def selector_loss(self, y, logits, wanted, previous):
        loss, _, p = Mismatch.apply(logits, wanted, 0.0)
        candidates = logits.detach().topk(self.draft.config.top_k, -1).indices
        values = logits.gather(-1, candidates).float()
        log_q = self.draft.candidate_selector(values, candidates, y, previous).log_softmax(-1)
        p = p.gather(-1, candidates)
        overlap = torch.minimum(p, log_q.exp()).sum(-1)
        self.note(overlap)
        on_lattice = -(p * log_q).sum(-1)
        return weighted(loss + CROSS_ENTROPY_SHARE * on_lattice + (1 - overlap))

    def markov_loss(self, y, logits, wanted, previous):
        bias, score = self.draft.correct(y, previous)
        losses, overlap, _ = Mismatch.apply(logits + bias, wanted, 1.0)
        self.note(overlap)
        confidence = functional.binary_cross_entropy_with_logits(
            score, overlap.detach(), reduction="none"
        )
        return weighted(losses + confidence)


class MtpTrainer:
    def __init__(self, draft, target, samples):
        self.draft, self.target = draft, target
        self.hidden = target.config.hidden_size
        self.embeddings = target.model.embed_tokens.weight
        self.head = target.lm_head.weight.bfloat16()
        self.accepted = None

    note = BlockTrainer.note

    def loss(self, batch):
        ids, states = batch
        hidden = states[..., -self.hidden :]
        num_rows = ids.shape[1] - MTP_ITERATIONS - 1
        carry, past, losses, overlaps, distillation = hidden[:, :num_rows], [], [], [], 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for step in range(MTP_ITERATIONS):
                embedded = self.embeddings[ids[:, step + 1 : step + 1 + num_rows]]
                if step == 0:
                    embedded[:, 0] = 0
                x = self.draft.inputs(embedded, carry)
                carry, distil = self.draft.iterate(x, step, past)
                labels = hidden[:, step + 1 : step + 1 + num_rows]
                wanted = functional.linear(labels, self.head)
                logits = functional.linear(carry.bfloat16(), self.head)
                loss, overlap, _ = Mismatch.apply(logits, wanted, 1.0)
                losses.append(loss)
                overlaps.append(overlap)
                if distil is not None:
                    distillation = self.indexer_loss(*distil)
        self.note(torch.stack(overlaps, -1))
        return weighted(torch.stack(losses, -1)) + 0.1 * distillation

    @staticmethod
    def indexer_loss(index_scores, attention):
        log_index = index_scores.float().log_softmax(-1)
        log_index = torch.where(torch.isinf(log_index), torch.zeros_like(log_index), log_index)
        return (attention * ((attention + 1e-9).log() - log_index)).sum(-1).mean()


def new_mtp(target):
    """Begins as the target's layer, with both inputs passed on in equal parts."""
    draft = MtpDraft(target.config, MTP_LIKE_LAYER)
    draft.load_state_dict(target.model.layers[MTP_LIKE_LAYER].state_dict(), strict=False)
    with torch.no_grad():
        both = draft.eh_proj.weight
        both.copy_(torch.eye(both.shape[0]).repeat(1, 2) + 0.01 * torch.randn_like(both))
        draft.shared_head.norm.weight.copy_(target.model.norm.weight)
    return draft.requires_grad_(True)


class Checkpoints:
    """Saves now and then, and says how much of the target each proposal covers."""

    def __init__(self, trainer, path):
        self.trainer, self.path, self.saved = trainer, path, time.monotonic()

    def loss(self, batch):
        if time.monotonic() - self.saved > CHECKPOINT_S:
            self.save()
        return self.trainer.loss(batch)

    def save(self):
        torch.save(self.trainer.draft.state_dict(), self.path)
        self.saved = time.monotonic()
        accepted = self.trainer.accepted.tolist()
        chain = sum(math.prod(accepted[: i + 1]) for i in range(len(accepted)))
        print(
            f"wrote {self.path}; overlap by proposal {' '.join(f'{a:.3f}' for a in accepted)};"
            f" tokens per round at temperature 1 about {1 + chain:.2f}",
            flush=True,
        )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=tuple(SEQUENCES))
    parser.add_argument("--samples", type=Path, default=Path("samples"), help="of draft_data.py")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="output directory")
    parser.add_argument("--seconds", type=float, required=True, help="time budget")
    parser.add_argument("--max-steps", type=int, default=100_000, help="step limit")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--begin", type=Path, help="checkpoint to begin with, as far as it fits")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    target, samples = draft_data.load_target(), Samples(arguments.samples, arguments.seed)
    new = {"dflash2": Dflash2Draft, "dspark": DsparkDraft, "mtp": lambda: new_mtp(target)}
    draft, path = new[arguments.kind](), arguments.out / f"draft_{arguments.kind}.pt"
    if arguments.begin:
        draft.load_state_dict(torch.load(arguments.begin, weights_only=True), strict=False)
    trainer = (MtpTrainer if arguments.kind == "mtp" else BlockTrainer)(draft, target, samples)
    checkpoints, parameters = Checkpoints(trainer, path), list(draft.parameters())
    print(f"{sum(p.numel() for p in parameters) / 1e6:.2f} M parameters", flush=True)
    draft.train(arguments.kind != "mtp")  # the bias of a router in training would move
    run_phase(
        Phase(
            parameters=parameters,
            optimizer=torch.optim.AdamW(parameters, betas=(0.9, 0.98), weight_decay=0.01),
            make_batch=lambda: samples.batch(SEQUENCES[arguments.kind], NUM_TOKENS[arguments.kind]),
            loss=checkpoints.loss,
            peak_rate=arguments.rate,
            warmup_steps=50,
            report_every=25,
            name=arguments.kind,
            budget_s=arguments.seconds,
            max_steps=arguments.max_steps,
        )
    )
    checkpoints.save()


if __name__ == "__main__":
    main()

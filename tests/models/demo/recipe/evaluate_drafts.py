"""Decodes held-out prompts with a draft directory and counts what is accepted.

Every round drafts, verifies in one pass of the target, and accepts: greedily the drafts that the
target would have chosen, at a temperature by rejection sampling. Reported are the tokens per round,
the target's own one included, and the acceptance of each proposal when those before it were
accepted.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional

import draft_data
from drafts import Dflash2Draft, DsparkDraft, MtpDraft
from train_drafts import MTP_LIKE_LAYER

NUM_TARGET_LAYERS = 8
KINDS = {"DFlash2DraftModel": "dflash2", "Qwen3DSparkModel": "dspark"}


class Chooser:
    """Draws from scores at one temperature; 0 takes the largest."""

    def __init__(self, temperature, generator):
        self.temperature, self.generator = temperature, generator

    def distribution(self, scores):
        if self.temperature == 0:
            return functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
        return (scores.float() / self.temperature).softmax(-1)

    def draw(self, distribution):
        return distribution.multinomial(1, generator=self.generator)[..., 0]

    def __call__(self, scores):
        distribution = self.distribution(scores)
        return self.draw(distribution), distribution


class BlockProposer:
    def __init__(self, draft, target):
        self.draft, self.hidden = draft, target.config.hidden_size
        self.embeddings, self.head = target.model.embed_tokens.weight, target.lm_head.weight
        self.num_proposals = draft.config.num_proposals

    def propose(self, world, choose):
        anchors = world.ids.gather(1, world.anchor[:, None])
        taps = world.states[:, : int(world.anchor.max()), : -self.hidden].float()
        y = self.draft(taps, anchors, world.anchor[:, None], self.embeddings)[:, 0]
        logits = y[:, -self.num_proposals :] @ self.head.T
        return self.draft.propose(y, logits, anchors[:, 0], choose)


class MtpProposer:
    def __init__(self, draft, target, num_proposals):
        self.draft, self.num_proposals = draft, num_proposals
        self.hidden = target.config.hidden_size
        self.embeddings, self.head = target.model.embed_tokens.weight, target.lm_head.weight

    def propose(self, world, choose):
        num_rows = int(world.anchor.max())
        carry = world.states[:, :num_rows, -self.hidden :].float()
        embedded = self.embeddings[world.ids[:, 1 : num_rows + 1]]
        embedded[:, 0] = 0
        own, past, tokens, distributions = torch.arange(len(carry)), [], [], []
        for step in range(self.num_proposals):
            carry, _ = self.draft.iterate(self.draft.inputs(embedded, carry), step, past)
            token, distribution = choose(carry[own, world.anchor - 1] @ self.head.T)
            tokens.append(token)
            distributions.append(distribution)
            embedded = self.embeddings[token][:, None].expand(-1, num_rows, -1)
        return torch.stack(tokens, 1), torch.stack(distributions, 1)


class World:
    """Sequences that grow by accepted tokens; the states of positions below the anchor hold."""

    def __init__(self, target, prompts, num_tokens, choose):
        batch, length = prompts.shape
        self.target, self.choose = target, choose
        target.reset(batch, num_tokens)
        self.ids = torch.zeros(batch, num_tokens, dtype=torch.long)
        self.ids[:, :length] = prompts
        states = target.forward(prompts, torch.arange(length).expand(batch, -1))
        self.states = torch.zeros(batch, num_tokens, states.shape[-1], dtype=states.dtype)
        self.states[:, :length] = states
        self.anchor = torch.full((batch,), length)
        self.ids[:, length], _ = choose(target.logits(states[:, -1]))

    def verify(self, drafts, proposed):
        """drafts [N, G], proposed [N, G, V] -> number of accepted drafts [N]."""
        num_drafts, own = drafts.shape[1], torch.arange(len(drafts))
        rows = self.anchor[:, None] + torch.arange(num_drafts + 1)
        self.ids[own[:, None], rows[:, 1:]] = drafts
        states = self.target.forward(self.ids[own[:, None], rows], rows)
        self.states[own[:, None], rows] = states
        wanted = self.choose.distribution(self.target.logits(states))
        index = drafts[..., None]
        p, q = wanted[:, :-1].gather(-1, index)[..., 0], proposed.gather(-1, index)[..., 0]
        accepted = torch.rand(p.shape, generator=self.choose.generator) * q < p
        num_accepted = accepted.long().cumprod(1).sum(1)
        rest = wanted.clone()
        rest[:, :-1] = (rest[:, :-1] - proposed).clamp(min=0)
        last = rest[own, num_accepted]
        empty = last.sum(-1, keepdim=True) <= 1e-8
        last = torch.where(empty, wanted[own, num_accepted], last)
        self.anchor = self.anchor + num_accepted + 1
        self.ids[own, self.anchor] = self.choose.draw(last)
        return num_accepted


def load_draft(directory, target, num_proposals):
    architecture = json.loads((directory / "config.json").read_text())["architectures"][0]
    tensors = load_file(directory / "model.safetensors")
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    kind = KINDS.get(architecture, "mtp")
    if kind == "mtp":
        draft = MtpDraft(target.config, MTP_LIKE_LAYER)
        prefix = f"model.layers.{NUM_TARGET_LAYERS}."
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    else:
        draft = {"dflash2": Dflash2Draft, "dspark": DsparkDraft}[kind]()
    draft.load_state_dict(tensors)
    draft.eval().requires_grad_(False)
    if kind == "mtp":
        return MtpProposer(draft, target, num_proposals)
    return BlockProposer(draft, target)


def measure(proposer, target, prompts, arguments, temperature):
    choose = Chooser(temperature, torch.Generator().manual_seed(arguments.seed))
    num_tokens = prompts.shape[1] + 2 + (arguments.rounds + 1) * (proposer.num_proposals + 1)
    world = World(target, prompts, num_tokens, choose)
    rounds = torch.stack(
        [world.verify(*proposer.propose(world, choose)) for _ in range(arguments.rounds)]
    )
    by_proposal = []
    for k in range(proposer.num_proposals):
        tried = (rounds >= k).sum().item()
        by_proposal.append(f"{(rounds > k).sum().item() / max(tried, 1):.2f}")
    print(
        f"temperature {temperature}: {rounds.float().mean() + 1:.2f} tokens per round;"
        f" acceptance by proposal {' '.join(by_proposal)}",
        flush=True,
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="+", help="of export_drafts.py")
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of prepare.py")
    parser.add_argument("--prompts", type=int, default=32, help="how many (default 32)")
    parser.add_argument("--length", type=int, default=48, help="of a prompt (default 48)")
    parser.add_argument("--rounds", type=int, default=32, help="of each prompt (default 32)")
    parser.add_argument("--proposals", type=int, default=3, help="of MTP (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="of draws (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    return parser.parse_args()


@torch.no_grad()
def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    text = torch.from_numpy(np.load(arguments.data / "val.npy").astype(np.int64))
    stride = (len(text) - arguments.length) // arguments.prompts
    prompts = torch.stack(
        [text[i * stride : i * stride + arguments.length] for i in range(arguments.prompts)]
    )
    model = draft_data.load_target()
    target = draft_data.CachedTarget(model)
    for directory in arguments.directory:
        proposer = load_draft(directory, model, arguments.proposals)
        print(f"{directory}: {proposer.num_proposals} proposals")
        for temperature in (0.0, 0.7, 1.0):
            measure(proposer, target, prompts, arguments, temperature)


if __name__ == "__main__":
    main()

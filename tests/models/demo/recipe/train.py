"""Trains the demo model in three phases, each within a time budget.

1. language    8 windows of 512 tokens per step
2. long        2 windows of 2,048 tokens; in 70 % of the steps a passage of each is repeated later
               on, so that looking far back pays
3. indexer     1 such window; everything else is frozen, the indexers learn to predict the dense
               attention: KL divergence to its mean over the heads and the layers of their group

Writes checkpoint_1_language.pt, checkpoint_2_long.pt and checkpoint_3_indexer.pt. The learning
rate follows the clock (or the steps, with --max-steps), so each phase ends annealed wherever it
is stopped; a budget of 0 leaves a phase out. Two runs with budgets in seconds differ slightly:
for a repeatable one give large budgets and --max-steps.
"""

import argparse
import dataclasses
import math
import time
from pathlib import Path
from typing import Callable

import numpy as np
import torch
from torch.nn import functional

from model import AttentionMode, DemoModel, ModelConfig

COPY_SHARE = 0.7
FINAL_RATE = 0.05  # of the peak learning rate
MAX_GRADIENT_NORM = 1.0
LOSS_MEMORY = 0.97  # of the reported moving average
MAX_EVALUATED_TOKENS = 26000
PHASE_NAMES = ("language", "long", "indexer")


class Corpus:
    """Random windows of the training tokens, each [B, num_tokens + 1] with the last target."""

    def __init__(self, tokens, seed):
        self.tokens = tokens
        self.random = np.random.default_rng(seed)

    def windows(self, batch, num_tokens):
        starts = self.random.integers(0, len(self.tokens) - num_tokens - 1, batch)
        return self.stack([self.tokens[i : i + num_tokens + 1] for i in starts])

    def windows_with_copies(self, batch, num_tokens):
        return self.stack([self.window_with_copy(num_tokens) for _ in range(batch)])

    def windows_some_with_copies(self, batch, num_tokens):
        make = self.windows_with_copies if self.random.random() < COPY_SHARE else self.windows
        return make(batch, num_tokens)

    def window_with_copy(self, num_tokens):
        """A window in which a passage of its first two thirds overwrites a later one."""
        draw, size = self.random.integers, num_tokens + 1
        length = int(draw(num_tokens // 8, num_tokens // 3))
        start = draw(0, len(self.tokens) - 2 * num_tokens)
        window = self.tokens[start : start + size].copy()
        source = int(draw(0, num_tokens // 3))
        target = source + length
        if target < size - length:
            target = int(draw(target, size - length))
        length = min(length, size - target)
        window[target : target + length] = window[source : source + length]
        return window

    @staticmethod
    def stack(windows):
        return torch.from_numpy(np.stack(windows))


@dataclasses.dataclass
class Phase:
    parameters: list
    optimizer: torch.optim.Optimizer
    make_batch: Callable  # () -> token ids [B, T + 1]
    loss: Callable  # token ids -> scalar
    peak_rate: float
    warmup_steps: int
    report_every: int
    name: str = ""
    budget_s: float = math.inf
    max_steps: int = 100_000

    def learning_rate(self, step, elapsed_s):
        """Linear warm-up times a cosine over whichever of the two limits is nearer."""
        progress = min(1, max(step / self.max_steps, elapsed_s / self.budget_s))
        warmup = min(1, (step + 1) / self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.peak_rate * warmup * (cosine * (1 - FINAL_RATE) + FINAL_RATE)


def run_phase(phase):
    started, average, step = time.monotonic(), None, 0
    while step < phase.max_steps and (elapsed_s := time.monotonic() - started) < phase.budget_s:
        rate = phase.learning_rate(step, elapsed_s)
        for group in phase.optimizer.param_groups:
            group["lr"] = rate
        loss = phase.loss(phase.make_batch())
        phase.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(phase.parameters, MAX_GRADIENT_NORM)
        phase.optimizer.step()
        step += 1
        value = loss.item()
        average = value if average is None else LOSS_MEMORY * average + (1 - LOSS_MEMORY) * value
        if step == 1 or step % phase.report_every == 0:
            print(
                f"{phase.name:9} step {step:5} loss {average:.3f} rate {rate:.2e}"
                f" {elapsed_s:.0f} s",
                flush=True,
            )
    final = "" if average is None else f", loss {average:.3f}"
    print(f"{phase.name:9} done after {step} steps{final}", flush=True)


def cross_entropy(model, hidden, targets):
    """Nats per token; the product with lm_head runs in bf16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model.lm_head(hidden).float()
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def language_loss(model, ids):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = model(ids[:, :-1])
    return cross_entropy(model, hidden, ids[:, 1:])


def indexer_loss(model, ids):
    """Mean over the indexers of KL(attention of the group || softmax of the index scores)."""
    ids = ids[:, :-1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, traces = model(ids, AttentionMode.DISTIL)
    num_tokens = ids.shape[1]
    mask = torch.full((num_tokens, num_tokens), -math.inf).triu(1)
    groups = model.config.indexer_groups()
    loss = 0
    for group in groups:
        target = sum(traces[layer_idx].attention for layer_idx in group) / len(group)
        log_index = (traces[group[0]].index_scores + mask).log_softmax(-1)
        # Where masked the target is 0, and 0 * inf must not become NaN.
        log_index = torch.where(torch.isinf(log_index), torch.zeros_like(log_index), log_index)
        loss = loss + (target * ((target + 1e-9).log() - log_index)).sum(-1).mean()
    return loss / len(groups)


@torch.no_grad()
def held_out_loss(model, tokens, num_tokens, mode=AttentionMode.DENSE):
    """Nats per token over consecutive windows of num_tokens."""
    was_training = model.training
    model.eval()
    losses = []
    for start in range(0, min(MAX_EVALUATED_TOKENS, len(tokens) - num_tokens - 1), num_tokens):
        ids = torch.from_numpy(tokens[None, start : start + num_tokens + 1])
        hidden, _ = model(ids[:, :-1], mode)
        losses.append(cross_entropy(model, hidden, ids[:, 1:]).item())
    model.train(was_training)
    return sum(losses) / len(losses)


def build_phases(model, corpus, arguments):
    main, indexer = model.main_parameters(), model.indexer_parameters()
    # The first two share an optimizer: the second goes on with the moments of the first.
    main_optimizer = torch.optim.AdamW(main, betas=(0.9, 0.98), weight_decay=0.1)
    indexer_optimizer = torch.optim.AdamW(indexer, betas=(0.9, 0.98), weight_decay=0.01)

    def on_model(loss):
        return lambda ids: loss(model, ids)

    phases = [
        Phase(
            parameters=main,
            optimizer=main_optimizer,
            make_batch=lambda: corpus.windows(8, 512),
            loss=on_model(language_loss),
            peak_rate=2e-3,
            warmup_steps=50,
            report_every=50,
        ),
        Phase(
            parameters=main,
            optimizer=main_optimizer,
            make_batch=lambda: corpus.windows_some_with_copies(2, 2048),
            loss=on_model(language_loss),
            peak_rate=6e-4,
            warmup_steps=20,
            report_every=20,
        ),
        Phase(
            parameters=indexer,
            optimizer=indexer_optimizer,
            make_batch=lambda: corpus.windows_with_copies(1, 2048),
            loss=on_model(indexer_loss),
            peak_rate=2e-3,
            warmup_steps=20,
            report_every=20,
        ),
    ]
    limits = zip(PHASE_NAMES, arguments.seconds, arguments.max_steps)
    return [
        dataclasses.replace(phase, name=name, budget_s=budget_s, max_steps=max_steps)
        for phase, (name, budget_s, max_steps) in zip(phases, limits)
    ]


def run_and_save(phase, phase_number, model, out):
    run_phase(phase)
    path = out / f"checkpoint_{phase_number}_{phase.name}.pt"
    torch.save(model.state_dict(), path)
    print(f"wrote {path}", flush=True)


def report(model, held_out, lengths, modes=(AttentionMode.DENSE,)):
    for num_tokens in lengths:
        losses = [
            f"{mode.name.lower()} {held_out_loss(model, held_out, num_tokens, mode):.3f}"
            for mode in modes
        ]
        print(f"held out, {num_tokens} tokens: {', '.join(losses)} nats per token", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    per_phase = {"nargs": 3, "metavar": ("P1", "P2", "P3")}
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of prepare.py")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="output directory")
    parser.add_argument(
        "--seconds", type=float, required=True, help="time budgets of the phases", **per_phase
    )
    parser.add_argument(
        "--max-steps", type=int, default=[100_000] * 3, help="step limits", **per_phase
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    corpus = Corpus(np.load(arguments.data / "train.npy").astype(np.int64), arguments.seed)
    held_out = np.load(arguments.data / "val.npy").astype(np.int64)
    model = DemoModel(ModelConfig())
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{num_parameters / 1e6:.1f} M parameters, {len(corpus.tokens)} tokens", flush=True)
    language, long, indexer = build_phases(model, corpus, arguments)

    model.train()
    run_and_save(language, 1, model, arguments.out)
    report(model, held_out, [1024])
    run_and_save(long, 2, model, arguments.out)
    report(model, held_out, [1024, 4096])

    for parameter in model.main_parameters():
        parameter.requires_grad_(False)
    model.eval()  # the correction bias of the routers stays as it is
    run_and_save(indexer, 3, model, arguments.out)
    report(model, held_out, [1024, 2048, 4096], [AttentionMode.DENSE, AttentionMode.SPARSE])


if __name__ == "__main__":
    main()

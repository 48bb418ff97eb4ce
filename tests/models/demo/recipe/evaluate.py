"""Measures a demo checkpoint with the Hugging Face class and compares it with model.py.

1. Bits per byte of held_out.txt in float32, dense and sparse. Dense is the same model with a top-k
   that nothing exceeds.
2. The largest difference of the logits of the class and of model.py, both in float64, with sparse
   attention; and how many selections hang on equal scores. The class is made exact by oracle.py
   of the golden vectors of the model, which is also where its float32 islands are explained.

Needs only the checkpoint directory and held_out.txt. Fails when the logits differ by more than
--tolerance of their root mean square.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from model import AttentionMode, DemoModel, ModelConfig, Numerics

DEMO = Path(__file__).resolve().parents[1]
sys.path.append(str(DEMO.parents[1] / "golden" / "model"))
import oracle  # noqa: E402  (found through the line above)

LINES_PER_CHAPTER = 2  # heading, verses


class HeldOut:
    """The chapters of held_out.txt as one token sequence, as prepare.py encodes them."""

    def __init__(self, text_path, checkpoint):
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        lines = text_path.read_text(encoding="utf-8").splitlines(keepends=True)
        ids = []
        for i in range(0, len(lines), LINES_PER_CHAPTER):
            chapter = "".join(lines[i : i + LINES_PER_CHAPTER])
            ids += [tokenizer.eos_token_id, *tokenizer.encode(chapter)]
        self.ids = torch.tensor(ids)
        self.num_bytes = text_path.stat().st_size

    def windows(self, num_tokens, max_windows):
        """[[1, num_tokens + 1]]: consecutive windows, each with the target of its last token."""
        starts = range(0, len(self.ids) - num_tokens - 1, num_tokens)
        return [self.ids[None, i : i + num_tokens + 1] for i in starts[:max_windows]]

    def bits_per_byte(self, nats_per_token):
        """With the bytes per token of the whole text, whichever windows were measured."""
        return nats_per_token / math.log(2) * len(self.ids) / self.num_bytes


def load_class(checkpoint):
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    return model.eval()


def set_top_k(model, top_k):
    for layer in model.model.layers:
        if layer.self_attn.indexer is not None:
            layer.self_attn.indexer.index_topk = top_k


def window_loss(model, window):
    """Nats per token."""
    with torch.no_grad():
        logits = model(input_ids=window[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits[0], window[0, 1:]).item()


def report_bits_per_byte(model, held_out, arguments):
    windows = held_out.windows(arguments.tokens, arguments.windows)
    if not windows:
        raise SystemExit(
            f"evaluate.py: held_out.txt has {len(held_out.ids)} tokens, no window of"
            f" {arguments.tokens} fits; use a smaller --tokens"
        )
    sparse = model.config.index_topk
    losses = {"dense": [], f"top-{sparse}": []}
    print(f"{len(windows)} windows of {arguments.tokens} tokens, float32, bits per byte so far:")
    for window_idx, window in enumerate(windows):
        started = time.monotonic()
        for (_, values), top_k in zip(losses.items(), (arguments.tokens, sparse)):
            set_top_k(model, top_k)
            values.append(window_loss(model, window))
        so_far = [
            f"{name} {held_out.bits_per_byte(sum(values) / len(values)):.4f}"
            for name, values in losses.items()
        ]
        seconds = time.monotonic() - started
        print(f"  window {window_idx + 1}: {', '.join(so_far)} ({seconds:.0f} s)", flush=True)
    for name, values in losses.items():
        nats = sum(values) / len(values)
        print(
            f"{name}: {nats:.4f} nats per token, {held_out.bits_per_byte(nats):.4f} bits per byte"
        )


class TieCounter:
    """Counts rows of index scores whose last selected and first rejected score are equal."""

    def __init__(self, model):
        self.num_ties, self.num_rows = {}, 0
        for layer_idx, layer in enumerate(model.model.layers):
            if layer.self_attn.indexer is not None:
                layer.self_attn.indexer.register_forward_hook(self.counter(layer_idx))
        self.top_k = model.config.index_topk

    def counter(self, layer_idx):
        def count(module, inputs, scores):
            num_tokens = scores.shape[-1]
            self.num_rows = max(num_tokens - self.top_k, 0)  # rows that have to reject something
            self.num_ties[layer_idx] = 0
            for row in range(self.top_k, num_tokens):
                best = scores[0, row, : row + 1].topk(self.top_k + 1).values
                self.num_ties[layer_idx] += int(best[-1] == best[-2])

        return count


def load_exact(checkpoint):
    model = DemoModel(ModelConfig.from_file(checkpoint / "config.json"), Numerics.EXACT)
    stored = load_file(checkpoint / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in stored.items()})
    return model.double().eval()


def report_exact_difference(held_out, arguments):
    """-> whether the logits agree."""
    reference, modeling = oracle.load(arguments.checkpoint)
    model = load_exact(arguments.checkpoint)
    ties, agrees = TieCounter(model), True
    print("float64, sparse: Hugging Face class against model.py")
    for num_tokens in arguments.exact_tokens:
        ids = held_out.ids[:num_tokens]
        expected = torch.from_numpy(oracle.logits(reference, modeling, ids.tolist()))
        with torch.no_grad():
            hidden, _ = model(ids[None], AttentionMode.SPARSE)
            actual = model.lm_head(hidden)[0]
        rms = expected.pow(2).mean().sqrt().item()
        largest = (actual - expected).abs().max().item()
        agrees &= largest <= arguments.tolerance * rms
        print(f"  {num_tokens} tokens: largest difference {largest:.1e}, rms of logits {rms:.2f}")
        counts = ", ".join(f"layer {i}: {n}" for i, n in ties.num_ties.items())
        print(f"    equal scores at the cut, of {ties.num_rows} rows: {counts}", flush=True)
    return agrees


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkpoint", type=Path, nargs="?", default=DEMO, help="default: the committed one"
    )
    parser.add_argument("--text", type=Path, default=DEMO / "held_out.txt", help="held-out text")
    parser.add_argument("--tokens", type=int, default=4096, help="per window (default 4096)")
    parser.add_argument("--windows", type=int, help="at most so many; 0: none; default: all")
    parser.add_argument(
        "--exact-tokens",
        type=int,
        nargs="*",
        default=[256, 600, 2000],
        help="lengths of the float64 comparison (default 256 600 2000; may be empty)",
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-9, help="of the comparison (default 1e-9)"
    )
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    held_out = HeldOut(arguments.text, arguments.checkpoint)
    print(f"held out: {len(held_out.ids)} tokens, {held_out.num_bytes} bytes", flush=True)
    if arguments.windows != 0:
        report_bits_per_byte(load_class(arguments.checkpoint), held_out, arguments)
    if arguments.exact_tokens and not report_exact_difference(held_out, arguments):
        sys.exit("evaluate.py: the logits differ by more than --tolerance")


if __name__ == "__main__":
    main()

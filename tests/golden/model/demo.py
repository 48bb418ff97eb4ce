"""Vectors of the demo checkpoint: how far bf16 arithmetic may stray on a trained model.

The tiny random models of generate.py cannot tell: there a rounded router flips an expert after a
few tokens and the output with it. Writes vectors/demo.safetensors: input_ids [T], rows [R], logits
[R, V] of the Hugging Face class in f32, and a greedy continuation. All lengths stay below the
model's top-k, where its indexer has exact ties.

    python demo.py
"""

import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "models" / "demo"
NUM_TOKENS = 208
NUM_GREEDY = 32
MIN_MARGIN = 0.15  # between the best two logits, so that bf16 cannot swap them


def greedy(model, prompt):
    """The continuation, or None when a step is closer than MIN_MARGIN."""
    tokens = list(prompt)
    for _ in range(NUM_GREEDY):
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = logits.topk(2)
        if best.values[0] - best.values[1] < MIN_MARGIN:
            return None
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :]


def main():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    text = (MODEL / "held_out.txt").read_text()
    ids = Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(text).ids
    with torch.no_grad():
        for start in range(0, len(ids) - NUM_TOKENS, 16):
            prompt = ids[start : start + NUM_TOKENS]
            continuation = greedy(model, prompt)
            if continuation is not None:
                break
        else:
            raise SystemExit("no prompt with a clear continuation")
        logits = model(torch.tensor([prompt]), use_cache=False).logits[0]
    rows = torch.arange(3, NUM_TOKENS, 8)
    vectors = {
        "input_ids": torch.tensor(prompt, dtype=torch.int32),
        "rows": rows.to(torch.int32),
        "logits": logits[rows].contiguous(),
        "greedy_tokens": torch.tensor(continuation, dtype=torch.int32),
    }
    save_file(vectors, HERE / "vectors" / "demo.safetensors")
    print(f"prompt at token {start}, {NUM_GREEDY} greedy tokens with a margin of {MIN_MARGIN}")


if __name__ == "__main__":
    main()

"""Writes what the target itself says, and what its layers held while it said it.

Prompts are random windows of the training text; their continuations are drawn from the target, a
part of them greedily. Each shard holds a batch:

ids      int16 [N, T]
states   bf16 [N, T, (taps + 1) * D]: outputs of the tapped layers, and what goes into the head

The target attends to everything it sees here. Its top-k of 256 would reject positions in the later
part of a window, which changes little (README.md), and the drafts must bear it.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from model import DemoModel, ModelConfig, Numerics, position_geometry

DEMO = Path(__file__).resolve().parents[1]
TAPS = (1, 3, 5, 6)  # target layers whose output the drafts see
PROMPT_LENGTHS = (8, 16, 32, 64, 128, 256)
TEMPERATURES = (0.0, 0.7, 1.0)
TEMPERATURE_SHARES = (0.3, 0.3, 0.4)
CHUNK = 64  # rows of a prompt that run together


def load_target(directory=DEMO):
    model = DemoModel(ModelConfig.from_file(directory / "config.json"))
    stored = load_file(directory / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in stored.items()})
    return model.eval().requires_grad_(False)


def draw(logits, temperature, generator):
    """logits [N, V], temperature [N] (0: the largest) -> tokens [N]."""
    safe = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    drawn = (logits / safe[:, None]).softmax(-1).multinomial(1, generator=generator)[:, 0]
    return torch.where(temperature > 0, drawn, logits.argmax(-1))


class CachedLayer:
    """One layer in bf16 with absorbed latent attention and its cache [N, T, latent + rope]."""

    def __init__(self, layer, config):
        self.config = config
        self.norms = (layer.input_layernorm, layer.post_attention_layernorm)
        self.attn = layer.self_attn
        self.q_a, self.q_b, self.kv_a, self.o = (
            getattr(self.attn, name).weight.bfloat16()
            for name in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
        )
        expand = self.attn.kv_b_proj.weight.bfloat16()
        expand = expand.view(config.num_attention_heads, -1, config.kv_lora_rank)
        self.expand_key, self.expand_value = expand.split(
            (config.qk_nope_head_dim, config.v_head_dim), 1
        )
        self.gate = getattr(layer.mlp, "gate", None)
        blocks = [layer.mlp]
        if self.gate is not None:
            blocks = [layer.mlp.shared_experts, *layer.mlp.experts]
        self.shared = self.stack(blocks[:1])
        self.routed = self.stack(blocks[1:]) if self.gate is not None else None
        self.cache = None

    @staticmethod
    def stack(blocks):
        """-> (gate, up, down), each [blocks, in, out]."""
        names = ("gate_proj", "up_proj", "down_proj")
        return [
            torch.stack([getattr(b, name).weight.T for b in blocks]).bfloat16() for name in names
        ]

    def reset(self, batch, num_tokens):
        width = self.config.kv_lora_rank + self.config.qk_rope_head_dim
        self.cache = torch.zeros(batch, num_tokens, width, dtype=torch.bfloat16)

    def attention(self, x, scene):
        """x [N, R, D] -> [N, R, D]; writes the rows of x to the cache first."""
        config, positions = self.config, scene["positions"]
        heads, nope = config.num_attention_heads, config.qk_nope_head_dim
        q = functional.linear(self.attn.q_a_layernorm(functional.linear(x, self.q_a)).bfloat16(),
                              self.q_b)
        q = q.unflatten(-1, (heads, -1))
        q_rope = turn(q[..., nope:], scene["cos"][:, :, None], scene["sin"][:, :, None])
        compressed = functional.linear(x, self.kv_a)
        latent = self.attn.kv_a_layernorm(compressed[..., : config.kv_lora_rank])
        rope = turn(compressed[..., config.kv_lora_rank :], scene["cos"], scene["sin"])
        rows = torch.arange(len(x))[:, None]
        self.cache[rows, positions] = torch.cat((latent, rope), -1).bfloat16()
        seen = self.cache[:, None, : scene["num_seen"]]
        absorbed = torch.einsum("nrhc,hcl->nrhl", q[..., :nope], self.expand_key)
        queries = torch.cat((absorbed, q_rope.bfloat16()), -1).flatten(1, 2)[:, None]
        # The heads of a row are rows of one attention over the shared latents; of its output the
        # rope channels mean nothing.
        mixed = functional.scaled_dot_product_attention(
            queries, seen, seen, scene["mask"], scale=(nope + q_rope.shape[-1]) ** -0.5
        )[:, 0, :, : config.kv_lora_rank]
        values = torch.einsum("nrhl,hvl->nrhv", mixed.unflatten(1, (-1, heads)), self.expand_value)
        return functional.linear(values.flatten(2), self.o)

    @staticmethod
    def swiglu(x, block):
        """x [N, D] -> [blocks, N, D]."""
        x = x.expand(len(block[0]), -1, -1)
        return (functional.silu(x @ block[0]) * (x @ block[1])) @ block[2]

    def feed_forward(self, x):
        tokens = x.flatten(0, 1)
        out = self.swiglu(tokens, self.shared)[0].float()
        if self.gate is not None:
            ids, weights = self.gate(tokens.float())
            share = torch.zeros(len(tokens), self.config.n_routed_experts)
            share.scatter_(1, ids, weights)
            routed = self.swiglu(tokens, self.routed).float()
            out = out + torch.einsum("end,ne->nd", routed, share)
        return out.view(x.shape)

    def forward(self, x, scene):
        x = x + self.attention(self.norms[0](x).bfloat16(), scene).float()
        return x + self.feed_forward(self.norms[1](x).bfloat16())


def turn(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class CachedTarget:
    """The target over growing sequences, dense attention, bf16 products."""

    def __init__(self, model, taps=TAPS):
        self.model, self.config, self.taps = model, model.config, taps
        self.layers = [CachedLayer(layer, model.config) for layer in model.model.layers]
        self.head = model.lm_head.weight.bfloat16()

    def reset(self, batch, num_tokens):
        self.geometry = position_geometry(self.config, num_tokens, Numerics.MIXED)
        for layer in self.layers:
            layer.reset(batch, num_tokens)

    def forward(self, ids, positions):
        """ids, positions [N, R] -> states [N, R, (taps + 1) * D] bf16. Rows at the same or later
        positions in the cache are overwritten or not seen."""
        num_seen = int(positions.max()) + 1
        scene = {
            "positions": positions,
            "cos": self.geometry.cos[positions],
            "sin": self.geometry.sin[positions],
            "num_seen": num_seen,
            "mask": None,
        }
        if int(positions.min()) + 1 < num_seen:
            visible = torch.arange(num_seen) <= positions[..., None]
            visible = visible.repeat_interleave(self.config.num_attention_heads, 1)
            scene["mask"] = visible[:, None]
        x, states = self.model.model.embed_tokens(ids), []
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, scene)
            if i in self.taps:
                states.append(x.bfloat16())
        return torch.cat((*states, self.model.model.norm(x).bfloat16()), -1)

    def logits(self, states):
        """Of the last D channels of the states."""
        return functional.linear(states[..., -self.config.hidden_size :], self.head).float()


def sample(target, prompts, num_tokens, temperature, generator):
    """prompts [N, P] -> (ids [N, num_tokens], states of them)."""
    batch, prompt_length = prompts.shape
    target.reset(batch, num_tokens)
    ids = torch.zeros(batch, num_tokens, dtype=torch.long)
    ids[:, :prompt_length] = prompts
    width = (len(target.taps) + 1) * target.config.hidden_size
    states = torch.empty(batch, num_tokens, width, dtype=torch.bfloat16)
    for begin in range(0, prompt_length, CHUNK):
        end = min(begin + CHUNK, prompt_length)
        rows = torch.arange(begin, end).expand(batch, -1)
        states[:, begin:end] = target.forward(prompts[:, begin:end], rows)
    for t in range(prompt_length, num_tokens):
        ids[:, t] = draw(target.logits(states[:, t - 1]), temperature, generator)
        states[:, t : t + 1] = target.forward(ids[:, t : t + 1], torch.full((batch, 1), t))
    return ids, states


def write_shard(target, text, path, generator, arguments):
    random = np.random.default_rng([arguments.seed, int(path.stem.rpartition("_")[2])])
    length = int(random.choice(PROMPT_LENGTHS))
    starts = random.integers(0, len(text) - length, arguments.batch)
    prompts = torch.from_numpy(np.stack([text[i : i + length] for i in starts]))
    temperature = random.choice(TEMPERATURES, arguments.batch, p=TEMPERATURE_SHARES)
    temperature = torch.from_numpy(temperature).float()
    ids, states = sample(target, prompts, arguments.tokens, temperature, generator)
    scratch = path.with_suffix(".part")
    save_file({"ids": ids.short(), "states": states}, scratch)
    scratch.rename(path)  # a reader sees whole shards only


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of prepare.py")
    parser.add_argument("--out", type=Path, default=Path("samples"), help="output directory")
    parser.add_argument("--shards", type=int, default=32, help="how many (default 32)")
    parser.add_argument("--batch", type=int, default=128, help="windows per shard (default 128)")
    parser.add_argument("--tokens", type=int, default=512, help="per window (default 512)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts and draws (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    return parser.parse_args()


@torch.no_grad()
def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    text = np.load(arguments.data / "train.npy").astype(np.int64)
    target = CachedTarget(load_target())
    for shard in range(arguments.shards):
        path = arguments.out / f"shard_{shard:03}.safetensors"
        if path.exists():
            continue
        started = time.monotonic()
        generator = torch.Generator().manual_seed(arguments.seed * 1000 + shard)
        write_shard(target, text, path, generator, arguments)
        print(f"wrote {path} in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

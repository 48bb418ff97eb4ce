"""The drafts in vectorised float64 PyTorch: every anchor at once, masks instead of loops.

Written from the formulas. Shares no code with naive.py, which it is compared against.

Shapes: A anchors, B block rows, T context tokens, H hidden, N heads, D head_dim.
"""

import torch
from torch.nn import functional


def turn(x, positions, theta):
    """Rope as a complex product: x [..., rows, N, D], positions [..., rows]."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = positions.double()[..., None, None] * frequency
    turned = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    turned = turned * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)


class Draft:
    def __init__(self, spec, weights, embeddings, head):
        self.spec, self.head, self.embeddings = spec, head, embeddings
        self.w = weights

    def norm(self, x, name):
        weight = self.w[name + ".weight"]
        return functional.rms_norm(x, weight.shape, weight, self.spec.eps)

    def linear(self, x, name):
        return functional.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def split(self, x):
        return x.unflatten(-1, (-1, self.spec.head_dim))

    def keys(self, x, prefix, positions):
        k = self.norm(self.split(self.linear(x, prefix + "k_proj")), prefix + "k_norm")
        return turn(k, positions, self.spec.theta)

    def context(self, taps):
        features = self.norm(self.linear(taps, "fc"), "hidden_norm")
        positions, layers = torch.arange(len(taps)), []
        for i in range(self.spec.num_layers):
            prefix = f"layers.{i}.self_attn."
            values = self.split(self.linear(features, prefix + "v_proj"))
            layers.append((self.keys(features, prefix, positions), values))
        return features, layers

    def visibility(self, first_positions, num_context):
        """-> bool [A, B, T + B]."""
        spec, first = self.spec, first_positions[:, None, None]
        rows = torch.arange(spec.block_rows)
        query = first + rows[None, :, None]
        context = torch.arange(num_context).expand(len(first), spec.block_rows, -1)
        block = (first + rows).expand(-1, spec.block_rows, -1)
        visible = torch.cat((context < first, torch.ones_like(block, dtype=torch.bool)), -1)
        key = torch.cat((context, block), -1)
        if spec.is_causal:
            visible &= key <= query
        if spec.window:
            visible &= key > query - spec.window
        return visible

    def attention(self, x, prefix, cached, scene):
        """x [A, B, H] -> [A, B, H]."""
        first_positions, visible = scene
        positions = first_positions[:, None] + torch.arange(x.shape[1])
        q = self.norm(self.split(self.linear(x, prefix + "q_proj")), prefix + "q_norm")
        q = turn(q, positions, self.spec.theta)
        k = self.keys(x, prefix, positions)
        v = self.split(self.linear(x, prefix + "v_proj"))
        repeats = self.spec.num_heads // self.spec.num_kv_heads
        k, v = (
            torch.cat((old.expand(len(x), -1, -1, -1), new), 1).repeat_interleave(repeats, 2)
            for old, new in zip(cached, (k, v))
        )
        scores = torch.einsum("abnd,aknd->anbk", q, k) * self.spec.head_dim**-0.5
        scores = scores.masked_fill(~visible[:, None], -torch.inf)
        mixed = torch.einsum("anbk,aknd->abnd", scores.softmax(-1), v)
        return self.linear(mixed.flatten(2), prefix + "o_proj")

    def feed_forward(self, x, prefix):
        gate = functional.silu(self.linear(x, prefix + "gate_proj"))
        return self.linear(gate * self.linear(x, prefix + "up_proj"), prefix + "down_proj")

    def kernels(self, normed, name):
        """-> [2, A, B, taps, H]."""
        base = self.w[name + ".base_kernel"]
        delta = self.linear(normed, name + ".kernel_projection")
        delta = delta.unflatten(-1, (2, self.spec.conv_width, -1))
        delta = delta.repeat_interleave(self.spec.conv_group, -1)
        return (base + delta).movedim(2, 0)

    def filtered(self, x, kernel):
        width = self.spec.conv_width
        history = functional.pad(x, (0, 0, width - 1, 0)).unfold(1, width, 1)  # [A, B, H, taps]
        return torch.einsum("abth,abht->abh", kernel, history.flip(-1))

    def block(self, layers, anchors, mask_token, first_positions):
        """anchors [A], first_positions [A] -> [A, B, H] after the final norm."""
        ids = torch.full((len(anchors), self.spec.block_rows), mask_token)
        ids[:, 0] = anchors
        x = self.embeddings[ids]
        scene = first_positions, self.visibility(first_positions, len(layers[0][0]))
        for i, cached in enumerate(layers):
            prefix = f"layers.{i}."
            for norm, conv in (
                ("input_layernorm", "attention_conv"),
                ("post_attention_layernorm", "mlp_conv"),
            ):
                z = normed = self.norm(x, prefix + norm)
                if self.spec.conv_width:
                    kernel_in, kernel_out = self.kernels(normed, prefix + conv)
                    z = self.filtered(z, kernel_in)
                if conv == "attention_conv":
                    out = self.attention(z, prefix + "self_attn.", cached, scene)
                else:
                    out = self.feed_forward(z, prefix + "mlp.")
                x = x + (self.filtered(out, kernel_out) if self.spec.conv_width else out)
        return self.norm(x, "norm")

    def propose(self, hidden, anchors):
        y = hidden[:, self.spec.first_row :]
        taps = {"y": hidden, "logits": y @ self.head.T}
        if self.spec.kind == "dflash2":
            return taps | self.walk(y, taps["logits"], anchors)
        if self.spec.kind == "dspark":
            return taps | self.correct(y, taps["logits"], anchors)
        return taps | {"tokens": taps["logits"].argmax(-1)}

    def walk(self, y, logits, anchors):
        """All edges of the lattice at once, then a path through the table."""
        spec, name = self.spec, "candidate_selector."
        scaled = logits * spec.multiplier
        if spec.softcap:
            scaled = (scaled / spec.softcap).tanh() * spec.softcap
        values, ids = scaled.topk(spec.top_k, -1)
        e = self.linear(y, name + "hidden_projection")
        start = anchors[:, None, None].expand(-1, 1, spec.top_k)
        before = self.w[name + "predecessor_codebook"][torch.cat((start, ids[:, :-1]), 1)]
        after = self.w[name + "successor_codebook"][ids]
        edges = values[:, :, None] + torch.einsum("agpr,agr,agcr->agpc", before, e, after)
        rows, path = [], []
        came_from = torch.zeros(len(y), dtype=torch.long)
        for d in range(spec.num_proposals):
            row = edges[torch.arange(len(y)), d, came_from]
            came_from = row.argmax(-1)
            rows.append(row)
            path.append(came_from)
        rows, path = torch.stack(rows, 1), torch.stack(path, 1)
        return {
            "candidate_tokens": ids,
            "candidate_values": values,
            "selector_hidden": e,
            "edge_scores": rows,
            "tokens": ids.gather(-1, path[..., None])[..., 0],
            "confidence": rows.softmax(-1).amax(-1),
        }

    def correct(self, y, logits, anchors):
        rank = self.spec.rank
        state = torch.zeros(len(y), rank, dtype=torch.float64)
        tokens, corrected, scores = [anchors], [], []
        for k in range(self.spec.num_proposals):
            e = functional.embedding(tokens[-1], self.w["markov_head.markov_w1.weight"])
            source = torch.cat((y[:, k], e), -1)
            mixed = e
            if self.spec.markov == "gated":
                mixed = self.linear(source, "markov_head.gate_proj").sigmoid() * e
            if self.spec.markov == "rnn":
                joint = self.linear(torch.cat((state, e, y[:, k]), -1), "markov_head.joint_proj")
                keep, new, out = joint.split(rank, -1)
                state = torch.lerp(new.tanh(), state, keep.sigmoid())
                mixed = out.tanh()
            corrected.append(logits[:, k] + self.linear(mixed, "markov_head.markov_w2"))
            width = self.w["confidence_head.proj.weight"].shape[-1]
            scores.append(self.linear(source[:, :width], "confidence_head.proj")[:, 0])
            tokens.append(corrected[-1].argmax(-1))
        return {
            "corrected": torch.stack(corrected, 1),
            "tokens": torch.stack(tokens[1:], 1),
            "confidence_score": torch.stack(scores, 1),
        }

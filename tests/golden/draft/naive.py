"""The drafts in naive float64 numpy: one anchor, one row, one head, one key at a time.

Written from the formulas. Shares no code with batched.py, which it is compared against.
"""

import math

import numpy as np


def rms(x, weight, eps):
    return x / math.sqrt(float(x @ x) / len(x) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    powers = np.exp(scores - np.max(scores))
    return powers / powers.sum()


def rope(vector, position, theta):
    """One head. Channel i of the first half turns with channel i of the second."""
    half, out = len(vector) // 2, vector.copy()
    for i in range(half):
        angle = position * theta ** (-i / half)
        cos, sin = math.cos(angle), math.sin(angle)
        out[i] = vector[i] * cos - vector[i + half] * sin
        out[i + half] = vector[i + half] * cos + vector[i] * sin
    return out


class Draft:
    def __init__(self, spec, weights, embeddings, head):
        """weights, embeddings [V, H] and head [V, H] in float64; names are canonical."""
        self.spec, self.weights = spec, weights
        self.embeddings, self.head = embeddings, head

    def project(self, name, x):
        return self.weights[name + ".weight"] @ x

    def normalise(self, name, x):
        return rms(x, self.weights[name + ".weight"], self.spec.eps)

    def heads(self, prefix, name, x, position):
        """-> [heads][head_dim] queries or keys of one row, normalised and rotated."""
        flat = self.project(f"{prefix}{name}_proj", x)
        heads = flat.reshape(-1, self.spec.head_dim)
        normed = [self.normalise(f"{prefix}{name}_norm", head) for head in heads]
        return np.stack([rope(head, position, self.spec.theta) for head in normed])

    def values(self, prefix, x):
        return self.project(prefix + "v_proj", x).reshape(-1, self.spec.head_dim)

    def context(self, taps):
        """taps [T, m * Ht] -> (features [T, H], per layer (keys, values) [T, kv heads, hd])."""
        features = [self.normalise("hidden_norm", self.project("fc", row)) for row in taps]
        layers = []
        for i in range(self.spec.num_layers):
            prefix = f"layers.{i}.self_attn."
            keys = [self.heads(prefix, "k", c, t) for t, c in enumerate(features)]
            values = [self.values(prefix, c) for c in features]
            layers.append((np.stack(keys), np.stack(values)))
        return np.stack(features), layers

    def sees(self, query_position, key_position, first_position):
        spec = self.spec
        if spec.window and query_position - key_position >= spec.window:
            return False
        is_context = key_position < first_position
        return is_context or not spec.is_causal or key_position <= query_position

    def attend(self, prefix, inputs, cached, first_position):
        """inputs: list of rows [H] -> list of rows before o_proj."""
        spec, rows = self.spec, range(len(inputs))
        keys = list(cached[0][:first_position])
        values = list(cached[1][:first_position])
        keys += [self.heads(prefix, "k", inputs[i], first_position + i) for i in rows]
        values += [self.values(prefix, x) for x in inputs]
        outputs = []
        for i in rows:
            position = first_position + i
            queries = self.heads(prefix, "q", inputs[i], position)
            seen = [p for p in range(len(keys)) if self.sees(position, p, first_position)]
            output = []
            for h, query in enumerate(queries):
                g = h * spec.num_kv_heads // spec.num_heads
                scores = [query @ keys[p][g] / math.sqrt(spec.head_dim) for p in seen]
                weights = softmax(np.array(scores))
                output.append(sum(w * values[p][g] for w, p in zip(weights, seen)))
            outputs.append(np.concatenate(output))
        return outputs

    def convolve(self, name, side, rows, normed):
        """Kernels of row i come from the sublayer's normalised input of row i."""
        spec = self.spec
        base, groups = self.weights[name + ".base_kernel"], len(rows[0]) // spec.conv_group
        outputs = []
        for i, source in enumerate(normed):
            delta = self.project(name + ".kernel_projection", source)
            delta = delta.reshape(2, spec.conv_width, groups)
            out = np.zeros(len(rows[0]))
            for t in range(min(spec.conv_width, i + 1)):
                for channel in range(len(out)):
                    kernel = base[side, t, channel] + delta[side, t, channel // spec.conv_group]
                    out[channel] += kernel * rows[i - t][channel]
            outputs.append(out)
        return outputs

    def sublayer(self, names, x, function):
        """names: (norm, convolution). -> x + function(norm(x)), convolved on both sides."""
        norm, convolution = names
        normed = [self.normalise(norm, row) for row in x]
        if not self.spec.conv_width:
            return [row + out for row, out in zip(x, function(normed))]
        inputs = self.convolve(convolution, 0, normed, normed)
        outputs = self.convolve(convolution, 1, function(inputs), normed)
        return [row + out for row, out in zip(x, outputs)]

    def layer(self, i, x, cached, first_position):
        prefix = f"layers.{i}."

        def attention(inputs):
            outputs = self.attend(prefix + "self_attn.", inputs, cached, first_position)
            return [self.project(prefix + "self_attn.o_proj", row) for row in outputs]

        def feed_forward(inputs):
            name = prefix + "mlp."
            gated = [
                silu(self.project(name + "gate_proj", row)) * self.project(name + "up_proj", row)
                for row in inputs
            ]
            return [self.project(name + "down_proj", row) for row in gated]

        x = self.sublayer((prefix + "input_layernorm", prefix + "attention_conv"), x, attention)
        return self.sublayer(
            (prefix + "post_attention_layernorm", prefix + "mlp_conv"), x, feed_forward
        )

    def block(self, layers, anchor, mask_token, first_position):
        """-> hidden states of the block after the final norm [B, H]."""
        tokens = [anchor] + [mask_token] * (self.spec.block_rows - 1)
        x = [self.embeddings[token] for token in tokens]
        for i, cached in enumerate(layers):
            x = self.layer(i, x, cached, first_position)
        return np.stack([self.normalise("norm", row) for row in x])

    def propose(self, hidden, anchor):
        """hidden [B, H] -> taps of the proposal, named as in the vector files."""
        rows = hidden[self.spec.first_row :]
        logits = np.stack([self.head @ row for row in rows])
        choose = {"dflash": self.best, "dflash2": self.walk, "dspark": self.correct}
        taps = choose[self.spec.kind](rows, logits, anchor)
        return {"y": hidden, "logits": logits} | taps

    def best(self, rows, logits, anchor):
        return {"tokens": np.array([np.argmax(row) for row in logits], np.int32)}

    def walk(self, rows, logits, anchor):
        spec, name = self.spec, "candidate_selector."
        predecessors = self.weights[name + "predecessor_codebook"]
        successors = self.weights[name + "successor_codebook"]
        taps = {key: [] for key in WALK_TAPS}
        previous = anchor
        for row, scores in zip(rows, logits):
            scores = scores * spec.multiplier
            if spec.softcap:
                scores = spec.softcap * np.tanh(scores / spec.softcap)
            ids = sorted(range(len(scores)), key=lambda v: (-scores[v], v))[: spec.top_k]
            e = self.project(name + "hidden_projection", row)
            edges = np.array(
                [
                    scores[v] + sum(predecessors[previous, r] * e[r] * successors[v, r]
                                    for r in range(spec.rank))
                    for v in ids
                ]
            )
            chosen = int(np.argmax(edges))
            previous = ids[chosen]
            values = (ids, scores[ids], e, edges, previous, softmax(edges)[chosen])
            for key, value in zip(WALK_TAPS, values):
                taps[key].append(value)
        out = {key: np.array(value) for key, value in taps.items()}
        for key in ("tokens", "candidate_tokens"):
            out[key] = out[key].astype(np.int32)
        return out

    def correct(self, rows, logits, anchor):
        spec, w = self.spec, self.weights
        state, previous = np.zeros(spec.rank), anchor
        corrected, tokens, confidence = [], [], []
        for row, scores in zip(rows, logits):
            e = w["markov_head.markov_w1.weight"][previous]
            bias, state = self.markov_input(row, e, state)
            scores = scores + self.project("markov_head.markov_w2", bias)
            source = np.concatenate((row, e)) if spec.confidence_with_markov else row
            score = self.project("confidence_head.proj", source)[0]
            if spec.confidence_has_bias:
                score += w["confidence_head.proj.bias"][0]
            previous = int(np.argmax(scores))
            corrected.append(scores)
            tokens.append(previous)
            confidence.append(score)
        return {
            "corrected": np.stack(corrected),
            "tokens": np.array(tokens, np.int32),
            "confidence_score": np.array(confidence),
        }

    def markov_input(self, row, e, state):
        """-> (what markov_w2 is applied to, the next state)."""
        w, name = self.weights, "markov_head."
        if self.spec.markov == "vanilla":
            return e, state
        if self.spec.markov == "gated":
            gate = self.project(name + "gate_proj", np.concatenate((row, e)))
            return sigmoid(gate + w[name + "gate_proj.bias"]) * e, state
        joint = self.project(name + "joint_proj", np.concatenate((state, e, row)))
        joint = joint + w[name + "joint_proj.bias"]
        rank = len(state)
        gate = sigmoid(joint[:rank])
        state = gate * state + (1 - gate) * np.tanh(joint[rank : 2 * rank])
        return np.tanh(joint[2 * rank :]), state


WALK_TAPS = (
    "candidate_tokens",
    "candidate_values",
    "selector_hidden",
    "edge_scores",
    "tokens",
    "confidence",
)

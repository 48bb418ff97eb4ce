"""The Hugging Face classes as an oracle: plain full-sequence forward in true fp64, with taps.

What is changed in them, all from the outside, and why:

* fp64: the classes compute the rope table, the norms, the softmax, the router and the index scores
  in float32 whatever the dtype of the model. `exact` turns these casts into float64, so that the
  vectors are exact to the last bit of float32 and a near tie cannot depend on rounding.
* the eps of q_a_layernorm and kv_a_layernorm: the classes leave it at 1e-6; the config (and the
  serving engines) say rms_norm_eps, which is 1e-5 for GLM.
* channel order: the classes return interleaved rope as [all firsts | all seconds]. Scores do not
  notice, cached rows do; the taps are put back into the checkpoint's order (0, 1), (2, 3), ...
"""

import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, modeling_rope_utils
from transformers.models.deepseek_v32 import modeling_deepseek_v32
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa

from reference import FP8_BLOCK, MASKED

MODELING = {"deepseek_v32": modeling_deepseek_v32, "glm_moe_dsa": modeling_glm_moe_dsa}


class Float64Torch:
    """Stands in for the name `torch` inside a modeling module: float32 reads as float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def replaced(target, name, value):
    original = getattr(target, name)
    setattr(target, name, value)
    try:
        yield original
    finally:
        setattr(target, name, original)


@contextlib.contextmanager
def exact(modeling):
    with (
        replaced(modeling, "torch", Float64Torch()),
        replaced(modeling_rope_utils, "torch", Float64Torch()),
        replaced(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


def dequantised_copy(source, target):
    """An FP8 directory as a plain float64 one: the classes' own FP8 path needs a GPU kernel."""
    config = json.loads((source / "config.json").read_text())
    del config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config))
    stored = load_file(source / "model.safetensors")
    plain = {}
    for name, tensor in stored.items():
        if name.endswith("_scale_inv"):
            continue
        plain[name] = tensor.double()
        if (scale := stored.get(f"{name}_scale_inv")) is not None:
            rows, cols = tensor.shape
            scale = scale.double().repeat_interleave(FP8_BLOCK, 0)[:rows]
            plain[name] *= scale.repeat_interleave(FP8_BLOCK, 1)[:, :cols]
    save_file(plain, target / "model.safetensors", metadata={"format": "pt"})


def load(path):
    """-> (model in float64, its modeling module)."""
    with tempfile.TemporaryDirectory() as scratch:
        if "quantization_config" in json.loads((path / "config.json").read_text()):
            dequantised_copy(path, Path(scratch))
            path = Path(scratch)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    problems = {kind: names for kind, names in report.items() if names}
    assert not problems, problems
    modeling = MODELING[model.config.model_type]
    model = model.double().eval()  # some tensors are kept in float32 whatever was asked for
    with exact(modeling):  # the rope table is computed when the module is built
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    for layer in model.model.layers:
        layer.self_attn.q_a_layernorm.variance_epsilon = model.config.rms_norm_eps
        layer.self_attn.kv_a_layernorm.variance_epsilon = model.config.rms_norm_eps
    return model, modeling


def logits(model, modeling, ids):
    """ids: list of int -> [T, vocab] float64."""
    with exact(modeling), torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def interleave(rope):
    """[..., firsts | seconds] -> [..., (0, 1), (2, 3), ...]."""
    return torch.stack(rope.chunk(2, -1), -1).flatten(-2)


class Taps:
    """Records the intermediate results of one forward pass by layer."""

    def __init__(self, model, modeling):
        self.values, self.ropes, self.topk_inputs, self.indexer_inputs = {}, [], [], {}
        self.half_split_indexer = hasattr(modeling, "apply_rotary_pos_emb")
        self.modeling, self.handles = modeling, []
        for i, layer in enumerate(model.model.layers):
            self.watch(layer.self_attn, self.on_attention, i)
            self.watch(layer, self.on_layer, i)
            self.watch(layer.self_attn.kv_a_layernorm, self.on_latent, i)
            if (indexer := getattr(layer.self_attn, "indexer", None)) is not None:
                self.watch(indexer.wq_b, self.on_indexer_input, "q")
                self.watch(indexer.k_norm, self.on_indexer_input, "k")
                self.watch(indexer, self.on_indexer, i)
            if hasattr(layer.mlp, "gate"):
                self.watch(layer.mlp.gate, self.on_router, i)

    def watch(self, module, callback, *arguments):
        def hook(module, inputs, output):
            callback(*arguments, module, output)

        self.handles.append(module.register_forward_hook(hook))

    def put(self, i, name, tensor):
        self.values[f"layers.{i}.{name}"] = tensor.detach().squeeze(0).numpy()

    def on_latent(self, i, module, output):
        # The rope of MLA follows its latent norm; what came before is of another layer.
        self.ropes.clear()
        self.put(i, "c", output.reshape(output.shape[-2:]))

    def on_indexer_input(self, name, module, output):
        self.indexer_inputs[name] = output
        self.topk_inputs.clear()

    def on_indexer(self, i, indexer, chosen):
        self.put(i, "kr", interleave(self.ropes[0][1][:, 0]))
        q_rope, k_rope = self.ropes[-1]
        if not self.half_split_indexer:
            q_rope, k_rope = interleave(q_rope), interleave(k_rope)
        width = q_rope.shape[-1]
        q = self.indexer_inputs["q"].view(*q_rope.shape[:-1], indexer.head_dim)
        k = self.indexer_inputs["k"]
        self.put(i, "index_q", torch.cat((q_rope, q[..., width:]), -1).flatten(-2))
        self.put(i, "index_k", torch.cat((k_rope[:, :, 0], k[..., width:]), -1))
        (scores,) = self.topk_inputs
        self.put(i, "index_scores", scores.clamp(min=MASKED))
        # Rows that see fewer positions than top-k come with future ones: only the mask drops them.
        sets = chosen[0].numpy().astype(np.int32)
        sets = np.where(sets <= np.arange(len(sets))[:, None], sets, np.iinfo(np.int32).max)
        sets.sort(-1)
        self.values[f"layers.{i}.topk"] = np.where(sets == np.iinfo(np.int32).max, -1, sets)

    def on_attention(self, i, attention, output):
        if getattr(attention, "indexer", None) is None:
            self.put(i, "kr", interleave(self.ropes[0][1][:, 0]))
        self.put(i, "attn_out", output[0])

    def on_router(self, i, gate, output):
        _, weights, ids = output
        order = ids.argsort(-1)
        self.put(i, "router_ids", ids.gather(-1, order).int())
        self.put(i, "router_weights", weights.gather(-1, order))

    def on_layer(self, i, layer, output):
        self.put(i, "layer_out", output[0] if isinstance(output, tuple) else output)

    def record_rope(self, name):
        original = getattr(self.modeling, name)

        def recorded(*arguments, **options):
            self.ropes.append(original(*arguments, **options))
            return self.ropes[-1]

        return replaced(self.modeling, name, recorded)

    def record_topk(self):
        original = torch.Tensor.topk

        def recorded(tensor, *arguments, **options):
            self.topk_inputs.append(tensor)
            return original(tensor, *arguments, **options)

        return replaced(torch.Tensor, "topk", recorded)


def forward(model, modeling, ids):
    """-> taps named as in the vector files, float64 and int32."""
    taps = Taps(model, modeling)
    with contextlib.ExitStack() as stack:
        stack.enter_context(taps.record_topk())
        stack.enter_context(taps.record_rope("apply_rotary_pos_emb_interleave"))
        if taps.half_split_indexer:
            stack.enter_context(taps.record_rope("apply_rotary_pos_emb"))
        taps.values["logits"] = logits(model, modeling, ids)
    for handle in taps.handles:
        handle.remove()
    return taps.values

#!/usr/bin/env python3
"""Writes the tiny random checkpoints tiny_llama, tiny_qwen2 and tiny_qwen3: a Hugging Face folder (bf16), a GGUF twin (mixed types), and for each the
logits that transformers computes in float32 on the CPU from exactly the stored weights (of quantised ones: what the gguf package reads from them).

Needs: pip install torch transformers safetensors gguf numpy. NAME/hf.logits and NAME/gguf.logits: u32 tokens, u32 vocabulary, i32 ids, float32 logits of
every position.

What each one covers: llama untied, llama3 rope scaling (GGUF: factors tensor, interleaved pairs); qwen2 tied, q/k/v biases, linear scaling;
qwen3 untied, q/k norms, heads wider than hidden / heads, yarn.
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS, VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS = 40, 112, 64, 96, 2, 4, 2
COMMON = dict(hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, vocab_size=VOCAB,
              rms_norm_eps=1e-5, hidden_act="silu", max_position_embeddings=512, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "llama": dict(COMMON, model_type="llama", architectures=["LlamaForCausalLM"], head_dim=16, rope_theta=10000.0, rope_scaling=LLAMA3, tie_word_embeddings=False,
                  attention_bias=False, mlp_bias=False),
    "qwen2": dict(COMMON, model_type="qwen2", architectures=["Qwen2ForCausalLM"], rope_theta=20000.0, rope_scaling=dict(rope_type="linear", factor=2.0),
                  tie_word_embeddings=True, use_sliding_window=False),
    "qwen3": dict(COMMON, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=32, rope_theta=50000.0, rope_scaling=YARN, tie_word_embeddings=False,
                  attention_bias=False, use_sliding_window=False),
}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
TYPES = {"attn_q": T.Q8_0, "attn_k": T.Q5_1, "attn_v": T.F16, "attn_output": T.Q5_0, "ffn_gate": T.Q4_1, "ffn_up": T.Q4_0, "ffn_down": T.Q8_0, "token_embd": T.Q8_0,
         "output": T.BF16}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, block, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{block}.{NAMES[part]}.{kind}"


def interleave(rows, heads):
    """Rows of a half-split projection to pairs next to each other."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def deinterleave(rows, heads):
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def random_weights(model, random):
    weights = {}
    for name, value in model.state_dict().items():
        shape = tuple(value.shape)
        spread = 0.4 if name.endswith("embed_tokens.weight") else 0.2 if len(shape) == 1 else 1.2 / shape[1] ** 0.5
        centre = 1.0 if "norm" in name else 0.0
        weights[name] = torch.tensor(random.normal(centre, spread, shape), dtype=torch.float32).to(torch.bfloat16)
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    return weights


def logits_of(model, weights, ids):
    missing = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    model.tie_weights()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def save_logits(path, ids, logits):
    assert logits.shape == (len(ids), VOCAB) and np.isfinite(logits).all()
    path.write_bytes(struct.pack(f"<II{len(ids)}i", len(ids), VOCAB, *ids) + logits.astype("<f4").tobytes())


def write_gguf(path, arch, config, weights):
    """Returns the weights as a reader of the file sees them."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"tiny {arch}")
    writer.add_block_count(LAYERS)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(VOCAB)
    head_dim = config.get("head_dim", HIDDEN // HEADS)
    writer.add_rope_dimension_count(head_dim)
    if arch == "qwen3":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(YARN["factor"])
        writer.add_rope_scaling_orig_ctx_len(YARN["original_max_position_embeddings"])
    if arch == "qwen2":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(2.0)
    if arch == "llama":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config["rope_theta"], head_dim))
    read = {}
    for name, value in weights.items():
        stored, turned = gguf_name(name), value.float().numpy()
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(stored.split(".")[-2]) if arch == "llama" else None
        if heads:
            turned = interleave(turned, heads)
        kind = TYPES.get(stored.split(".")[-2], T.F32) if turned.ndim == 2 else T.F32
        raw = quantize(turned, kind)
        back = dequantize(raw, kind).astype(np.float32).reshape(turned.shape)
        read[name] = torch.tensor(deinterleave(back, heads) if heads else back)
        writer.add_tensor(stored, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def llama3_factors(base, dim):
    """What the factors tensor of a converted file holds: plain frequency over scaled frequency."""
    frequencies = base ** (-np.arange(0, dim, 2) / dim)
    turns = LLAMA3["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    kept = np.clip((turns - LLAMA3["low_freq_factor"]) / (LLAMA3["high_freq_factor"] - LLAMA3["low_freq_factor"]), 0, 1)
    return (1 / (kept + (1 - kept) / LLAMA3["factor"])).astype(np.float32)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for seed, (arch, config) in enumerate(MODELS.items()):
        random = np.random.default_rng(100 + seed)
        target = folder / f"tiny_{arch}"
        target.mkdir(exist_ok=True)
        (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(target), dtype=torch.float32, attn_implementation="eager").eval()
        weights = random_weights(model, random)
        ids = [int(i) for i in random.integers(0, VOCAB, TOKENS)]
        save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
        save_logits(target / "hf.logits", ids, logits_of(model, weights, ids))
        read = write_gguf(target / "model.gguf", arch, config, weights)
        save_logits(target / "gguf.logits", ids, logits_of(model, read, ids))


main()

#!/usr/bin/env python3
"""The usual Python route for a model that is bigger than the device: transformers with accelerate, layers that do not fit kept in host memory and
moved over by hooks. Random weights of a shape given, device memory capped. Prints one line of JSON.

    bench/gpu_accelerate.py --cap-bytes 8000000000 --sequences 32 --prompt 128 --new 16

Exit status 77, with a sentence: torch, transformers or accelerate are not installed, or there is no GPU (--device cpu tries the route without one;
what it prints then is no measurement of a GPU)."""
import argparse
import json
import sys
import time


def options():
    p = argparse.ArgumentParser()
    for name, default in (("layers", 28), ("hidden", 3584), ("heads", 28), ("kv-heads", 4), ("ffn", 18944), ("vocabulary", 152064)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--cap-bytes", type=int, required=True, help="device memory that may be used in all")
    p.add_argument("--reserve-bytes", type=int, default=0, help="of it for all but weights; 0: the cache and 1.5 GB")
    p.add_argument("--sequences", type=int, default=32)
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--new", type=int, default=16)
    p.add_argument("--link-bytes-per-second", type=float, default=0, help="as measured, for the link's share")
    p.add_argument("--device", default="cuda")
    return p.parse_args()


def skip(why):
    print(f"gpu_accelerate: skipped: {why}", file=sys.stderr)
    sys.exit(77)


def main():
    o = options()
    try:
        import accelerate
        import torch
        import transformers
    except ImportError as missing:
        skip(f"{missing.name} is not installed; pip install torch transformers accelerate")
    on_gpu = o.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        skip("torch finds no GPU")

    config = transformers.Qwen2Config(
        num_hidden_layers=o.layers, hidden_size=o.hidden, num_attention_heads=o.heads, num_key_value_heads=o.kv_heads, intermediate_size=o.ffn,
        vocab_size=o.vocabulary, max_position_embeddings=32768, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.eval()

    cache = 2 * o.layers * o.kv_heads * (o.hidden // o.heads) * 2 * (o.prompt + o.new) * o.sequences
    reserve = o.reserve_bytes or cache + 1_500_000_000
    if on_gpu:
        # The fraction caps torch's allocator alone: what context and libraries take beside it is taken off, on a GPU that nobody else uses.
        square = torch.ones(64, 64, device="cuda:0")
        square @ square
        torch.cuda.synchronize()
        free, there = torch.cuda.mem_get_info(0)
        context = there - free - torch.cuda.memory_reserved(0)
        cap = max(o.cap_bytes - context, 0)
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / torch.cuda.get_device_properties(0).total_memory))
        places = accelerate.infer_auto_device_map(
            model, max_memory={0: max(cap - reserve, 0), "cpu": 1 << 50}, no_split_module_classes=["Qwen2DecoderLayer"], dtype=torch.bfloat16)
    else:
        context, places = 0, {"": "cpu"}

    # Numbers like those of trained weights, from one small piece: drawing billions of them would take longer than the run.
    piece = torch.randn(1 << 20, dtype=torch.float32).mul_(0.02).to(torch.bfloat16)
    moved = 0
    for name, parameter in list(model.named_parameters()):
        where = next(place for prefix, place in sorted(places.items(), key=lambda i: -len(i[0])) if name == prefix or name.startswith(prefix + ".") or prefix == "")
        count = parameter.numel()
        value = piece.repeat((count + piece.numel() - 1) // piece.numel())[:count].reshape(parameter.shape)
        accelerate.utils.set_module_tensor_to_device(model, name, where, value=torch.ones_like(value) if "norm" in name else value)
        moved += 2 * count if where == "cpu" and on_gpu else 0
    if on_gpu:
        model = accelerate.dispatch_model(model, device_map=places, main_device=0)

    device = "cuda:0" if on_gpu else "cpu"
    prompts = torch.randint(0, o.vocabulary, (o.sequences, o.prompt), device=device)
    kind = {"do_sample": False, "use_cache": True, "pad_token_id": 0, "attention_mask": torch.ones_like(prompts)}
    with torch.no_grad():
        model.generate(prompts[:, :8], max_new_tokens=1, min_new_tokens=1, **{**kind, "attention_mask": torch.ones_like(prompts[:, :8])})
        if on_gpu:
            torch.cuda.synchronize()
        began = time.monotonic()
        model.generate(prompts, max_new_tokens=o.new, min_new_tokens=o.new, **kind)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
    rate = moved * o.new / seconds
    print(json.dumps({
        "route": "transformers + accelerate", "gpu": on_gpu, "versions": {m.__name__: m.__version__ for m in (torch, transformers, accelerate)},
        "sequences": o.sequences, "prompt": o.prompt, "new": o.new, "seconds": seconds, "tokens_per_second": o.sequences * o.new / seconds,
        "moved_bytes_per_step": moved, "moved_bytes_per_second": rate,
        "link_share": rate / o.link_bytes_per_second if o.link_bytes_per_second > 0 else None,
        "peak_device_bytes": torch.cuda.max_memory_reserved() + context if on_gpu else None, "context_bytes": context, "cap_bytes": o.cap_bytes}))


main()

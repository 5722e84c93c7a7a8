#!/usr/bin/env python3
"""Writes smollm2_greedy.json: what a reference engine (pip install llama-cpp-python; CPU, one thread, f32 KV cache) answers greedily on
SmolLM2-135M-Instruct.Q4_1.gguf: prompts as token ids, 24 tokens each, and at each step how far its best logit was above the second.

usage: make_smollm2.py MODEL.gguf [OUT.json]
"""
import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

NEW_TOKENS = 24
QUESTIONS = [
    "What is the capital of France?",
    "What is 123 + 456?",
    "What is 12 times 11?",
    "Name the largest planet of the solar system.",
    "Write one sentence about the sea.",
    "Who wrote Romeo and Juliet?",
    "How many days does a week have?",
    "Translate 'good morning' to Spanish.",
    "What do bees make?",
    "List three colours.",
]
PLAIN = ["The quick brown fox", "Once upon a time, in a small village by the river,", "def fibonacci(n):\n    "]


def chat(question):
    return ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


def greedy(model, ids):
    model.reset()
    model.eval(ids)
    tokens, margins = [], []
    for _ in range(NEW_TOKENS):
        logits = np.array(model.scores[model.n_tokens - 1], dtype=np.float64)
        second, best = np.argsort(logits)[-2:]
        tokens.append(int(best))
        margins.append(round(float(logits[best] - logits[second]), 4))
        model.eval([int(best)])
    return tokens, margins


def main():
    path = Path(sys.argv[1])
    out = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).with_name("smollm2_greedy.json"))
    model = llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False, type_k=llama_cpp.GGML_TYPE_F32,
                            type_v=llama_cpp.GGML_TYPE_F32)
    prompts = []
    for text, special in [(chat(q), True) for q in QUESTIONS] + [(p, False) for p in PLAIN]:
        ids = model.tokenize(text.encode(), add_bos=False, special=special)
        tokens, margins = greedy(model, ids)
        print(repr(model.detokenize(tokens).decode(errors="replace")), min(margins), file=sys.stderr)
        prompts.append({"text": text, "ids": ids, "tokens": tokens, "margins": margins})
    made = f"llama-cpp-python {llama_cpp.__version__}, CPU, one thread, KV cache f32, greedy, by tests/golden/make_smollm2.py; margins in logits"
    record = {"made_by": made, "model": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "prompts": prompts}
    rows = ",\n ".join(json.dumps(p) for p in record.pop("prompts"))
    out.write_text(json.dumps(record)[:-1] + ', "prompts": [\n ' + rows + "\n]}\n")


main()

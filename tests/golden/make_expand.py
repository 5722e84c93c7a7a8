#!/usr/bin/env python3
"""Writes expand.bin: random stored blocks of each weight type and the float32 values that the gguf package (pip install gguf numpy) reads from them.

Record: u32 type, u32 elements, u32 bytes, the stored bytes, the float32 values. Little-endian.
"""
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Byte offsets of the float16 fields in a block: random bytes there would be infinities.
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
PLAIN = {T.F32: np.float32, T.F16: np.float16}
ELEMENTS = 768


def stored(kind, random):
    if kind in PLAIN:
        return (random.standard_normal(ELEMENTS) * 10.0 ** random.integers(-7, 3, ELEMENTS)).astype(PLAIN[kind]).view(np.uint8)
    if kind == T.BF16:
        return (random.standard_normal(ELEMENTS).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    block, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ELEMENTS // block, size), dtype=np.uint8)
    for at in HALVES[kind]:
        # the first block's scales are subnormal
        scale = random.standard_normal((len(blocks), 1)) * np.where(np.arange(len(blocks))[:, None] == 0, 1e-6, 0.1)
        blocks[:, at:at + 2] = scale.astype(np.float16).view(np.uint8)
    return blocks.reshape(-1)


def main():
    random = np.random.default_rng(20)
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("expand.bin"))
    with out.open("wb") as file:
        for kind in [*PLAIN, T.BF16, *HALVES]:
            raw = stored(kind, random)
            values = dequantize(raw.view(PLAIN[kind]) if kind in PLAIN else raw, kind).astype(np.float32)
            assert values.size == ELEMENTS
            file.write(struct.pack("<III", int(kind), ELEMENTS, raw.size) + raw.tobytes() + values.tobytes())


main()

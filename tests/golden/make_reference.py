"""Writes models of random shapes and types with the reference writers (Python packages gguf and safetensors), and what is in them as
manifest.json: make_reference.py FOLDER [SEED [COUNT]]

FOLDER/NAME.gguf and FOLDER/NAME/{config.json,model.safetensors}. The manifest has, per model, its tensors as the reference readers find
them: name, type, dims (first one contiguous), offset in the file, bytes, SHA-256 of the data; and some of a GGUF's keys."""
import hashlib, json, os, random, struct, sys

import gguf
import numpy as np
import safetensors

SAFETENSORS = {  # type: bits, and the name that the library takes
    "F64": (64, "float64"), "F32": (32, "float32"), "F16": (16, "float16"), "BF16": (16, "bfloat16"), "I64": (64, "int64"), "I32": (32, "int32"),
    "I16": (16, "int16"), "I8": (8, "int8"), "U8": (8, "uint8"), "U16": (16, "uint16"), "U32": (32, "uint32"), "U64": (64, "uint64"), "BOOL": (8, "bool"),
    "F8_E4M3": (8, "float8_e4m3fn"), "F8_E5M2": (8, "float8_e5m2"), "C64": (64, "complex64"), "F8_E8M0": (8, "float8_e8m0fnu"),
    "F4": (4, "float4_e2m1fn_x2"), "F8_E4M3FNUZ": (8, "float8_e4m3fnuz"), "F8_E5M2FNUZ": (8, "float8_e5m2fnuz"),
}


def digest(data):
    return hashlib.sha256(bytes(data)).hexdigest()


def shape(rng, first_multiple, most=4):
    dims = [first_multiple * rng.randint(1, 3)] + [rng.randint(1, 4) for _ in range(rng.randint(0, most - 1))]
    return dims


def names(rng, count):
    kinds = ["attn_q.weight", "attn_k.bias", "ffn_down.weight", "ffn_gate_exps.weight", "odd.%d" % rng.randint(0, 9)]
    made = {"token_embd.weight"}
    while len(made) < count:
        made.add("blk.%d.%s" % (rng.randint(0, 2), rng.choice(kinds)) if rng.random() < 0.6 else "t%d.weight" % rng.randint(0, 999))
    made = sorted(made)
    rng.shuffle(made)
    return made


def write_keys(rng, writer):
    writer.add_block_count(3)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([rng.choice([1, 2, 4]) for _ in range(3)])
    keys = {
        "k.uint8": ("uint8", rng.randint(0, 255)), "k.int8": ("int8", rng.randint(-128, 127)), "k.uint16": ("uint16", rng.randint(0, 65535)),
        "k.int16": ("int16", rng.randint(-32768, 32767)), "k.uint32": ("uint32", rng.randint(0, 2**32 - 1)), "k.int32": ("int32", rng.randint(-2**31, 2**31 - 1)),
        "k.uint64": ("uint64", rng.randint(0, 2**64 - 1)), "k.int64": ("int64", rng.randint(-2**63, 2**63 - 1)), "k.float32": ("float32", rng.randint(-99, 99) / 8),
        "k.float64": ("float64", rng.random()), "k.bool": ("bool", rng.random() < 0.5), "k.string": ("string", "é" * rng.randint(1, 40)),
    }
    for key, (kind, value) in keys.items():
        getattr(writer, "add_" + kind)(key, value)
    words = ["w%d" % rng.randint(0, 10**9) for _ in range(rng.randint(1, 50))]
    writer.add_token_list(words)
    writer.add_array("k.floats", [rng.random() for _ in range(rng.randint(1, 9))])
    manifest = [{"key": key, "kind": kind, "text": str(int(value) if kind == "bool" else value) if kind not in ("float32", "float64") else repr(value)}
                for key, (kind, value) in keys.items()]
    return manifest, words


def write_gguf(rng, path):
    writer = gguf.GGUFWriter(path, "llama")
    if rng.random() < 0.5:
        writer.add_custom_alignment(rng.choice([8, 64, 256]))
    keys, words = write_keys(rng, writer)
    types = [t for t in gguf.GGMLQuantizationType if t.name not in ("Q8_1", "Q8_K")]  # never in a file
    for name in names(rng, rng.randint(4, 16)):
        kind = rng.choice(types)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        dims = shape(rng, block)
        rows = 1
        for d in dims[1:]:
            rows *= d
        data = np.frombuffer(rng.randbytes(dims[0] // block * size * rows), dtype=np.uint8)
        data = data.reshape([*reversed(dims[1:]), dims[0] // block * size])
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = [{"name": t.name, "type": t.tensor_type.name, "dims": [int(d) for d in t.shape], "offset": int(t.data_offset), "bytes": int(t.n_bytes),
                "sha256": digest(t.data.tobytes())} for t in gguf.GGUFReader(path).tensors]
    return {"tensors": tensors, "keys": keys, "tokens": words}


def spec(entry):
    """What the library is given: newer ones take an address, older ones the bytes."""
    if not hasattr(safetensors, "TensorSpec"):
        return entry
    entry["held"] = np.frombuffer(entry["data"], dtype=np.uint8)
    return safetensors.TensorSpec(dtype=entry["dtype"], shape=entry["shape"], data_ptr=entry["held"].ctypes.data, data_len=len(entry["data"]))


def write_folder(rng, path):
    os.makedirs(path, exist_ok=True)
    with open(path + "/config.json", "w") as out:
        json.dump({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}, out)
    entries = {}
    for name in names(rng, rng.randint(4, 16)):
        kind = rng.choice(list(SAFETENSORS))
        bits, library = SAFETENSORS[kind]
        dims = shape(rng, 2 if kind == "F4" else 1)
        if rng.random() < 0.1 and kind != "F4":
            dims = []
        count = 1
        for d in dims:
            count *= d
        given = list(reversed(dims))
        if kind == "F4":
            given[-1] //= 2  # the library counts pairs and writes elements
        entries[name.replace("blk.", "model.layers.")] = {"dtype": library, "shape": given, "data": rng.randbytes(count * bits // 8)}
    file = path + "/model.safetensors"
    safetensors.serialize_file({name: spec(entry) for name, entry in entries.items()}, file, {"format": "pt"})
    with open(file, "rb") as made:
        whole = made.read()
    header_bytes = struct.unpack("<Q", whole[:8])[0]
    tensors = []
    for name, entry in json.loads(whole[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + at for at in entry["data_offsets"])
        assert whole[begin:end] == entries[name]["data"]
        tensors.append({"name": name, "type": entry["dtype"], "dims": list(reversed(entry["shape"])), "offset": begin, "bytes": end - begin,
                        "sha256": digest(whole[begin:end])})
    return {"tensors": tensors, "keys": [], "tokens": []}


def main(argv):
    folder, seed = argv[1], int(argv[2]) if len(argv) > 2 else 1
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    count = int(argv[3]) if len(argv) > 3 else 8
    models = []
    for i in range(count):
        models.append({"path": "g%d.gguf" % i, **write_gguf(rng, "%s/g%d.gguf" % (folder, i))})
        models.append({"path": "s%d" % i, **write_folder(rng, "%s/s%d" % (folder, i))})
    with open(folder + "/manifest.json", "w") as out:
        json.dump(models, out, indent=0)
    print(len(models), "models, seed", seed)


if __name__ == "__main__":
    main(sys.argv)

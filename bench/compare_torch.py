"""The same shapes through PyTorch on the CPU, weights fetched layer by layer by hooks in accelerate's manner: before a layer runs, its
weights are copied from the host's memory to the device's, at the link's rate; behind it they are dropped. Nothing is fetched while something computes.
Layers from the first on stay where the memory allows, one layer's room left for those that are fetched. Run by `ofload-bench compare`.
Prints one object in JSON; exit status 77 where a package is missing."""
import argparse
import json
import sys
import time

try:
    import torch
    import accelerate
    from accelerate.hooks import ModelHook, add_hook_to_module
    from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
except (ImportError, OSError) as missing:
    print(f"PyTorch and accelerate are needed: {missing}", file=sys.stderr)
    sys.exit(77)

SLICE_BYTES = 4 << 20


class Link:
    """Copies at a rate: slice by slice, none before its time."""

    def __init__(self, rate):
        self.rate, self.seconds, self.bytes = rate, 0.0, 0

    def copy(self, source):
        start, done = time.perf_counter(), 0
        target = torch.empty_like(source)
        parts = zip(target.view(-1).split(SLICE_BYTES // 2), source.view(-1).split(SLICE_BYTES // 2))
        for to, part in parts:
            to.copy_(part)
            done += part.numel() * part.element_size()
            left = start + done / self.rate - time.perf_counter()
            if left > 0:
                time.sleep(left)
        self.seconds += time.perf_counter() - start
        self.bytes += done
        return target


class Fetch(ModelHook):
    """A layer's weights live on the host and are on the device only while it runs."""

    def __init__(self, link):
        self.link, self.host = link, {}

    def init_hook(self, module):
        self.host = {name: weight.data for name, weight in module.named_parameters()}
        return self.drop(module)

    def drop(self, module):
        for weight in module.parameters():
            weight.data = torch.empty(0, dtype=weight.dtype)
        return module

    def pre_forward(self, module, *args, **kwargs):
        for name, weight in module.named_parameters():
            weight.data = self.link.copy(self.host[name])
        return args, kwargs

    def post_forward(self, module, output):
        self.drop(module)
        return output


def linear(columns, rows):
    layer = torch.nn.Linear(columns, rows, bias=False, dtype=torch.bfloat16)
    torch.nn.init.normal_(layer.weight, std=columns**-0.5)
    return layer


class Block(torch.nn.Module):
    """A llama block over one new token of each sequence, `context` tokens in its cache."""

    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.dim = s.heads, s.kv_heads, s.hidden // s.heads
        kv = self.kv_heads * self.dim
        self.q, self.k, self.v, self.o = linear(s.hidden, s.hidden), linear(s.hidden, kv), linear(s.hidden, kv), linear(s.hidden, s.hidden)
        self.gate, self.up, self.down = linear(s.hidden, s.ffn), linear(s.hidden, s.ffn), linear(s.ffn, s.hidden)
        self.keys = torch.randn(s.sequences, self.kv_heads, s.context + 1, self.dim, dtype=torch.bfloat16)
        self.values = torch.randn_like(self.keys)
        half = torch.arange(0, self.dim, 2) / self.dim
        angles = s.context * 10000.0**-half
        self.cosine, self.sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * self.cosine - b * self.sine, b * self.cosine + a * self.sine), -1)

    def attend(self, x):
        n = x.shape[0]
        query = self.turn(self.q(x).view(n, self.heads, 1, self.dim))
        self.keys[:, :, -1] = self.turn(self.k(x).view(n, self.kv_heads, self.dim))
        self.values[:, :, -1] = self.v(x).view(n, self.kv_heads, self.dim)
        groups = self.heads // self.kv_heads
        keys, values = self.keys.repeat_interleave(groups, 1), self.values.repeat_interleave(groups, 1)
        return self.o(scaled_dot_product_attention(query, keys, values).view(n, -1))

    def forward(self, x):
        x = x + self.attend(rms_norm(x, x.shape[-1:]))
        y = rms_norm(x, x.shape[-1:])
        return x + self.down(silu(self.gate(y)) * self.up(y))


def bytes_of(module):
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def hook_what_does_not_fit(layers, memory, link):
    """Whole layers from the first on; how many stay."""
    room, stay = memory - max(map(bytes_of, layers)), 0
    if sum(map(bytes_of, layers)) <= memory:
        return len(layers)
    while stay < len(layers) and bytes_of(layers[stay]) <= room:
        room -= bytes_of(layers[stay])
        stay += 1
    for layer in layers[stay:]:
        add_hook_to_module(layer, Fetch(link))
    return stay


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "kv-heads", "ffn", "vocabulary", "sequences", "context", "memory", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--link", type=float, required=True)
    return parser.parse_args()


def main():
    s, times = options(), []
    if s.threads > 0:
        torch.set_num_threads(s.threads)
    torch.manual_seed(1)
    layers = [Block(s) for _ in range(s.layers)] + [linear(s.hidden, s.vocabulary)]
    link = Link(s.link)
    stay = hook_what_does_not_fit(layers, s.memory, link)
    embedding = torch.randn(s.sequences, s.hidden, dtype=torch.bfloat16)
    with torch.inference_mode():
        for step in range(s.steps + 2):
            if step == 2:
                link.seconds = link.bytes = 0
            start, x = time.perf_counter(), embedding
            for layer in layers:
                x = layer(x)
            times.append(time.perf_counter() - start)
    measured = sorted(times[2:])
    print(json.dumps({
        "step_seconds": measured[len(measured) // 2],
        "least_seconds": measured[0],
        "most_seconds": measured[-1],
        "fetch_seconds": link.seconds / s.steps,
        "fetched_bytes": link.bytes / s.steps,
        "resident_layers": stay,
        "threads": torch.get_num_threads(),
        "versions": f"torch {torch.__version__}, accelerate {accelerate.__version__}",
    }))


main()

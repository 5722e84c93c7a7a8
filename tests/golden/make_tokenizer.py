"""Makes the goldens of the tokenizer and chat template tests with the packages `tokenizers`, `jinja2` and `gguf`.

    python tests/golden/make_tokenizer.py [SmolLM2-135M-Instruct.Q4_1.gguf]

Writes tests/golden/tokenizer/: small tokenizers trained on the text below (one folder each, as a Hugging Face folder has them), strings.json (the texts
that all are tried on), NAME.ids.json (their ids by the reference) and chats.json (conversations, their text by jinja2, its ids). With the model file,
smollm2.ids.json too: the reference is then built from the file's own vocabulary and merges.
"""
import json
import pathlib
import random
import sys

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent / "tokenizer"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

TEXT = """The night train leaves at ten and the morning train leaves at nine. Whoever waits for the first one reads, and whoever reads forgets the second.
A model that does not fit into the memory of one machine can still run there: part of it stays, the rest comes over the link when it is needed.
What is 12 plus 345? It is 357. What is 7 times 8? It's 56, and that's that. I'll say it again; you've heard it, they're bored, we'd rather go.
for (int i = 0; i < count; i++) { total += list[i]; }    /* the sum of the list */
def answer(question):\n    return "the answer to " + question\n\n\n
Der Zug fährt über die Brücke, und die Leute grüßen höflich. Le café est fermé à cause de la fête. El niño pequeño comió mañana.
Поезд идёт на север, и снег падает на поле. 今日は良い天気です。 火车在早上九点出发。 기차는 아침에 떠난다.
1234567890 3.14159 2,718,281 50% 100 € $5 <b>bold</b> a@b.example http://example.test/path?x=1&y=2
"""

HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t\t x", " a", "a ", "a  b", "a\n b", "a \n b", "a\n\n\nb", "  \n  x", "x  \n", "hello world", "Hello, World!",
    "The night train leaves at ten.", "what's that? It's 5 o'clock; they'RE here, we'Ve, I'LL, HE'D", "don't 'd 'x ''s", "1", "12", "123", "1234", "12345678",
    "3.14159", "1,000,000", "x1y22z333", "½ ² Ⅷ ٣٤ १२", "for (int i = 0; i < n; i++) {\n    sum += a[i];\n}\n", "\tif x:\n\t\treturn None  # why?\n",
    "a_b-c+d=e", "!!!???...", "#!/bin/sh", "{}[]()<>", "\"quoted\" 'single' `back`", "C:\\path\\file", "a/b/c", "über Größe Straße", "café", "cafe\u0301",
    "e\u0301e\u0301", "n\u0303 A\u030a \u1e9b\u0323", "\u212b \u2126 \ufb01", "q\u0307\u0323", "\uac00 \u1100\u1161 \u1100\u1161\u11a8", "Поезд идёт на север", "今日は良い天気です。",
    "火车在早上九点出发,不是吗?", "기차는 아침에 떠난다", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "\U0001f600", "\U0001f44d\U0001f3fd ok", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea flag", "a\u00a0b", "a\u2003b", "a\u3000b", "\u200b zero", "\ufeffbom", "tab\tbetween", "a\u2028b", "\x00", "a\x00b", "\x01\x02\x7f", "\x1b[0m", "\U0010ffff", "\ue000", "\ufffd",
    "\u2581", "a\u2581b", "\u2581\u2581 x", "x" * 40, "ab" * 40, "the " * 20, " " * 17, "\n" * 9, "a" + " " * 9 + "b", "1 2  3   4", "....a", " .a", " 's", "'s", "'S", "ſ 'ſ",
    "http://example.test/path?x=1&y=2#z", "mixed漢字andkana カナ", "ABC abc AbC aBc", "ÀÉÎ àéî", "ǅ ǈ ʰ", "…—–", "“curly” ‘quotes’", "a…b", "\\n \\t", "%d %s %%", "α+β=γ", "∀x∈ℝ: x²≥0",
    "SELECT * FROM t WHERE a='b';", "<html><body>&amp;</body></html>", "{\"key\": [1, 2.5e-3, null]}", "- item\n- item\n  - sub\n", "| a | b |\n|---|---|\n", "$x^2$", "foo.bar().baz",
    "I'm you're he'd we'll they've", "naïve coöperate", "Ünïcödé", "ﷺ", "\u0e33", "\u0c95\u0ccd\u0cb7", "\u1e0a\u0323", "end with space ", "end with newline\n", "end\r", "\r\r\n", "a\rb", "\x0b\x0c x", "\x85 x",
]


def random_texts(count):
    chance = random.Random(5)
    alphabets = ["abcdefghij ", "ABCab 12", "0123456789., ", " \n\t", "äöüßéèñ ", "日本語中文カナ、。", "абвгд ", "\U0001f600\U0001f680\u2764\ufe0f ", "e\u0301a\u0308o ", "{}()[];=+-*/<>!\"'#%&| ", "'stremvl ", "가나다 "]
    for _ in range(count):
        text = ""
        for _ in range(chance.randint(1, 5)):
            letters = chance.choice(alphabets)
            text += "".join(chance.choice(letters) for _ in range(chance.randint(1, 9)))
        yield text


def dump(path, value, **options):
    path.write_text(json.dumps(value, ensure_ascii=options.pop("ascii", False), separators=(",", ":"), **options) + "\n", encoding="utf-8")


def train(tokenizer, size, special, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT.split("\n") + ["\n", "\n\n", "    ", "\n    "], trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


def byte_level(pattern, special, normalizer=None, whole_words=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, 560, special, pre_tokenizers.ByteLevel.alphabet())


def characters(special, normalizer, pre_tokenizer):
    """Trained on marked words, then given byte tokens and an unknown token, as converted sentencepiece models have them."""
    draft = Tokenizer(models.BPE())
    draft.normalizer = normalizers.Replace(" ", "▁")
    draft.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(draft, 420, [], [])
    learnt = json.loads(draft.to_str())["model"]
    lead = ["<unk>"] + special + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {text: i for i, text in enumerate(lead + sorted(learnt["vocab"], key=learnt["vocab"].get))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(pair) for pair in learnt["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ["<unk>"] + special])
    return tokenizer


def make_tokenizers():
    llama3 = byte_level(LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "[INST]", "[/INST]"], whole_words=True)
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", llama3.token_to_id("<|begin_of_text|>"))])])
    qwen2 = byte_level(QWEN2, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    qwen2.add_tokens([AddedToken("<think>", special=False, normalized=False), AddedToken("</think>", special=False, normalized=False)])
    prepend = characters(["<s>", "</s>"], normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)
    prepend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", prepend.token_to_id("<s>"))])
    metaspace = characters(["<s>", "</s>", "[INST]", "[/INST]"], normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    gemma = characters(["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"], normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"))
    return {"llama3": llama3, "qwen2": qwen2, "prepend": prepend, "metaspace": metaspace, "gemma": gemma}


def write_folder(name, tokenizer):
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    tree = json.loads(tokenizer.to_str())
    if name in ("llama3", "prepend"):  # both ways of writing merges are met
        tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]
    dump(folder / "tokenizer.json", tree)
    config = {"llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
              "qwen2": {"add_bos_token": False, "bos_token": None, "eos_token": {"content": "<|im_end|>"}},
              "gemma": {"add_bos_token": True, "bos_token": "<bos>", "eos_token": "<eos>"}}.get(name, {"bos_token": {"content": "<s>"}, "eos_token": "</s>"})
    dump(folder / "tokenizer_config.json", config)
    return Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))


# Templates in this project's own words that render what the published ones of these families do.
TURNS = "{% for m in messages %}"
TEMPLATES = {
    "chatml": ("qwen2", TURNS + "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"),
    "chatml-default": ("qwen2", "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou\\'re the night clerk.<|im_end|>\\n' }}{% endif %}" + TURNS
                       + "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"),
    "chatml-think": ("qwen2", "{% if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}" + TURNS
                     + "{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}"
                     + "{% elif m.role != 'system' %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}{{ '<|im_start|>assistant\\n<think>\\n' }}"),
    "llama3": ("llama3", TURNS + "{% set line = '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' %}{{ bos_token + line if loop.first else line }}"
               + "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"),
    "llama3.1": ("llama3", "{{ bos_token }}{% set date_string = \"26 Jul 2024\" %}{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set rule = messages[0].content | trim %}"
                 + "{% else %}{% set rest = messages %}{% set rule = '' %}{% endif %}{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
                 + "{{ \"Cutting Knowledge Date: December 2023\\n\" }}{{ \"Today Date: \" + date_string + \"\\n\\n\" }}{{ rule + '<|eot_id|>' }}"
                 + "{% for m in rest %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
                 + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"),
    "mistral-v1": ("prepend", "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rule = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
                   + "{% for m in rest %}{% if m.role == 'user' %}{% if loop.first and rule is defined %}{{ ' [INST] ' + rule + '\\n\\n' + m.content + ' [/INST]' }}{% else %}"
                   + "{{ ' [INST] ' + m.content + ' [/INST]' }}{% endif %}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"),
    "mistral-plain": ("prepend", "{{ bos_token }}" + TURNS + "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"),
    "mistral-v3": ("metaspace", "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rule = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
                   + "{% for m in rest %}{% if m.role == 'user' %}{% if loop.last and rule is defined %}{{ \"[INST] \" + rule + \"\\n\\n\" + m.content + \"[/INST]\" }}{% else %}"
                   + "{{ \"[INST] \" + m.content + \"[/INST]\" }}{% endif %}{% else %}{{ \" \" + m.content|trim + eos_token }}{% endif %}{% endfor %}"),
    "mistral-tekken": ("llama3", "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rule = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
                       + "{% for m in rest %}{% if m.role == 'user' %}{% if loop.last and rule is defined %}{{ \"[INST]\" + rule + \"\\n\\n\" + m.content + \"[/INST]\" }}{% else %}"
                       + "{{ \"[INST]\" + m.content + \"[/INST]\" }}{% endif %}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"),
    "gemma": ("gemma", "{{ bos_token }}{% if messages[0].role == 'system' %}{% set lead = messages[0].content + '\\n\\n' %}{% set rest = messages[1:] %}{% else %}{% set lead = '' %}"
              + "{% set rest = messages %}{% endif %}{% for m in rest %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (lead if loop.first else '')"
              + " + m.content | trim + '<end_of_turn>\\n' }}{% endfor %}{{ '<start_of_turn>model\\n' }}"),
}
BEGIN = {"llama3": "<|begin_of_text|>", "gemma": "<bos>"}


def say(role, content):
    return {"role": role, "content": content}


CHATS = [
    [say("user", "What is 12 plus 345?")],
    [say("user", "\n\n  spaces around \n")],
    [say("system", "Answer briefly."), say("user", "When does the train leave?")],
    [say("system", "  Rule.\n"), say("user", "  one "), say("assistant", " It's nine. \n"), say("user", "\nand then?")],
    [say("user", "a"), say("assistant", "<think>\nhm\n</think>\n\nb"), say("user", "c"), say("assistant", "d"), say("user", "今日は")],
    [say("user", "café \U0001f600"), say("assistant", ""), say("user", "")],
]


def render(template, messages, folder):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True, bos_token=BEGIN.get(folder, "<s>"), eos_token="</s>")


def make_chats(tokenizers):
    chats = []
    for name, (folder, template) in TEMPLATES.items():
        for messages in CHATS:
            if name == "mistral-plain" and messages[0]["role"] == "system":
                continue  # the template has no place for it
            text = render(template, messages, folder)
            chats.append({"template": name, "messages": messages, "text": text, "ids": tokenizers[folder].encode(text, add_special_tokens=False).ids})
    dump(HERE / "chats.json", {"templates": {name: {"folder": folder, "text": text} for name, (folder, text) in TEMPLATES.items()}, "chats": chats}, ascii=True)


def make_smollm2(path, texts):
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text, kind in zip(tokens, kinds) if kind == 3])
    template = fields["tokenizer.chat_template"].contents()
    chats = [{"messages": messages, "ids": tokenizer.encode(render(template, messages, "smollm2"), add_special_tokens=False).ids} for messages in CHATS]
    dump(HERE / "smollm2.ids.json", {"ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in texts], "chats": chats}, ascii=True)


def main():
    texts = HAND + list(random_texts(100))
    HERE.mkdir(parents=True, exist_ok=True)
    dump(HERE / "strings.json", [text.encode("utf-8").hex() for text in texts])
    tokenizers = {name: write_folder(name, tokenizer) for name, tokenizer in make_tokenizers().items()}
    for name, tokenizer in tokenizers.items():
        dump(HERE / f"{name}.ids.json", [tokenizer.encode(text, add_special_tokens=False).ids for text in texts])
    make_chats(tokenizers)
    if len(sys.argv) > 1:
        make_smollm2(sys.argv[1], texts)


if __name__ == "__main__":
    main()

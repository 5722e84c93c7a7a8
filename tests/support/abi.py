#!/usr/bin/env python3
"""What a compiled program relies on, read from the public headers.
  abi.py layout INCLUDE CC       structs (size, each member's offset and size) and the values of enums, as the compiler has them
  abi.py earlier INCLUDE TO      a copy of the headers in which the last member of each struct that may grow is cut off
  abi.py later INCLUDE TO        a copy in which each of them has one more
  abi.py names INCLUDE CC        names and macros that do not begin with ofl_, OFL_ or OFLOAD_
  abi.py functions INCLUDE CC    the functions that are declared for export
  abi.py compare OLD NEW         exit 0: nothing differs; 3: only what older programs do not see; 4: they would break
"""
import pathlib
import re
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} ?\1;", re.S)
ENUM = re.compile(r"(?:typedef )?enum ?(\w*) ?\{(.*?)\}", re.S)
NEEDED = {"ofl_view"}  # of no use without its last member


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def run_with(options, cc, source):
    return subprocess.run([*cc.split(), *options, "-x", "c", "-"], input=source, text=True, check=True, capture_output=True).stdout


def preprocessed(include, cc, *options):
    return run_with(["-E", *options, "-I", include], cc, "#include <ofload/ofload.h>\n")


def own_text(include, cc):
    """The headers' own lines, without what they include from the system."""
    lines, own = [], False
    for line in preprocessed(include, cc).splitlines():
        mark = re.match(r'# \d+ "([^"]*)"', line)
        if mark:
            own = "/ofload/" in mark[1]
        elif own:
            lines.append(line)
    return "\n".join(lines)


def split_outside(text, separator):
    """Splits where the separator is in no bracket."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def members(body):
    for statement in split_outside(body, ";"):
        for declarator in split_outside(statement, ","):
            name = re.search(r"\(\*(\w+)\)", declarator) or re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declarator)
            if name:
                yield name[1]


def layout(include, cc):
    text = own_text(include, cc)
    out = ["#include <stddef.h>\n#include <stdio.h>\n#include <ofload/ofload.h>\nint main(void)\n{\n"]
    for name, body in STRUCT.findall(text):
        out.append(f'printf("struct {name} %zu\\n", sizeof({name}));\n')
        for member in members(body):
            out.append(f'printf("  {name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));\n')
    for name, body in ENUM.findall(text):
        for entry in split_outside(body, ","):
            constant = re.match(r"\s*(\w+)", entry)
            if constant:
                out.append(f'printf("enum {name or "-"} {constant[1]} %lld\\n", (long long){constant[1]});\n')
    out.append("return 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/layout"
        run_with(["-I", include, "-o", program], cc, "".join(out))
        return subprocess.run([program], text=True, check=True, capture_output=True).stdout


def growable(texts):
    """Structs that state their size and stand in no other one by value."""
    bodies = dict(pair for text in texts for pair in STRUCT.findall(text))
    inside = {word for body in bodies.values() for word in re.findall(r"(?:^|;)\s*(ofl_\w+)\s+\w", body)}
    return {name for name, body in bodies.items() if "struct_size" in body and name not in inside}


def copy_headers(include, to, change):
    headers = {path.name: strip_comments(path.read_text()) for path in pathlib.Path(include, "ofload").glob("*.h")}
    may_grow = growable(headers.values())
    folder = pathlib.Path(to, "ofload")
    folder.mkdir(parents=True)
    for name, text in headers.items():
        folder.joinpath(name).write_text(STRUCT.sub(lambda m: change(m) if m[1] in may_grow else m[0], text))
    return len(may_grow)


def cut(match):
    if match[1] in NEEDED:
        return match[0]
    statements = split_outside(match[2].rstrip().rstrip(";"), ";")
    declarators = split_outside(statements[-1], ",")
    statements[-1] = ",".join(declarators[:-1])
    body = ";".join(statement for statement in statements if statement.strip())
    return f"typedef struct {match[1]} {{{body};\n}} {match[1]};"


def add(match):
    return f"typedef struct {match[1]} {{{match[2]}    uint64_t of_a_later_release[2];\n}} {match[1]};"


def names(include, cc):
    found = set()
    text = own_text(include, cc)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)\)?", "", text)
    for _, body in ENUM.findall(text):
        found |= {re.match(r"\s*(\w*)", entry)[1] for entry in split_outside(body, ",")}
    outside = text
    while "{" in outside:
        outside, count = re.subn(r"\{[^{}]*\}", " ", outside)
        if count == 0:
            break
    for statement in outside.split(";"):
        head, _, rest = statement.partition("(")
        declared = re.match(r"\*\s*(\w+)", rest) or re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", head)
        tag = re.search(r"\b(?:struct|enum|union)\s+(\w+)", head)
        found |= {m[1] for m in (declared, tag) if m} - {"enum"}
    own = set(re.findall(r"^#define (\w+)", preprocessed(include, cc, "-dM"), re.M))
    system = run_with(["-E", "-dM"], cc, "#include <stddef.h>\n#include <stdint.h>\n")
    found |= own - set(re.findall(r"^#define (\w+)", system, re.M))
    return sorted(name for name in found if name and not re.match(r"(ofl_|OFL_|OFLOAD_)", name))


def entries(path):
    """Name of each line's subject → what it says; a growing count of an enum is nobody's business."""
    out = {}
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split()
        subject = {"enum": 3, "struct": 2}.get(words[0], 1)
        if not (words[0] == "enum" and words[2].endswith("_COUNT")):
            out[tuple(words[:subject])] = words[subject:]
    return out


def compare(old_path, new_path):
    old, new = entries(old_path), entries(new_path)
    grew, broken = [], []
    sizes = {key[1]: int(value[0]) for key, value in old.items() if key[0] == "struct"}
    sized = {key[0].split(".")[0] for key in old if key[0].endswith(".struct_size")}
    for key in sorted(old.keys() | new.keys()):
        name, was, now = " ".join(key), old.get(key), new.get(key)
        struct = key[1] if key[0] == "struct" else key[0].split(".")[0]
        if was == now:
            continue
        if was is None and "." in key[0] and struct in sizes and int(now[0]) < sizes[struct]:
            broken.append(f"{name}: lies in what older programs have as padding and never set; put a wider member there")
        elif was is None:
            grew.append(f"{name}: new")
        elif now is None:
            broken.append(f"{name}: gone")
        elif key[0] == "struct" and int(now[0]) > int(was[0]) and struct in sized:
            grew.append(f"{name}: {was[0]} bytes, now {now[0]}")
        else:
            broken.append(f"{name}: was {' '.join(was)}, is {' '.join(now)}")
    for line in [f"breaks older programs: {line}" for line in broken] + [f"grew: {line}" for line in grew]:
        print(line)
    return 4 if broken else 3 if grew else 0


def main(what, first, second):
    if what == "layout":
        print(layout(first, second), end="")
    elif what in ("earlier", "later"):
        return 0 if copy_headers(first, second, cut if what == "earlier" else add) > 20 else 1
    elif what == "functions":
        print("\n".join(sorted(re.findall(r'__attribute__\(\(visibility\("default"\)\)\)[^;(]*?(\w+)\(', own_text(first, second)))))
    elif what == "names":
        wrong = names(first, second)
        print("\n".join(wrong))
        return 1 if wrong else 0
    else:
        return compare(first, second)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

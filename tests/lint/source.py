# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for the source, each a function that yields what breaks it. Started by tests/lint/run with a list of files."""
import json
import os
import re
import subprocess
import sys

# ---- tables ------------------------------------------------------------------------------------------------------------------

# What the programs of the border decide by, the same code as hostd: pure, and without netlink.
BORDER_NETWORK = ("network/policy.h", "network/compile.h", "network/name.h", "network/view.h", "network/view_lists.h", "network/number.h")

# Layer of a file by its folder, and what it may include: layers, or single headers that two programs agree on.
LAYERS = {
    "hostd/base": ("base",),
    "quotas": ("base", "quotas"),
    "network": ("base", "network"),
    "hostd/wire": ("base", "wire"),
    "hostd/model": ("base", "quotas", "network", "wire", "model"),
    "hostd/api": ("base", "quotas", "network", "wire", "model", "api"),
    "hostd/state": ("base", "quotas", "network", "wire", "model", "state"),
    "hostd/border": ("base", "border", *BORDER_NETWORK),
    "hostd/resolver": ("base", "border", "resolver", *BORDER_NETWORK),
    "hostd/proxy": ("base", "border", "proxy", *BORDER_NETWORK),
    "hostd/flow": ("base", "border", "flow", *BORDER_NETWORK),
    "hostd/haproxy": ("base",),
    "hostd/secret": ("base", "state", "secret"),
    "hostd/redact": ("base", "redact", "border/confine.h"),
    "hostd/io": ("base", "io", "border/confine.h", "redact/proto.h", "redact/redact.h", "redact/values.h"),
    "hostd/core": ("base", "quotas", "network", "wire", "model", "api", "state", "secret", "border", "core",
                   "build/apt.h", "build/manifest.h", "build/mirrors.h", "build/wire.h", "redact/proto.h", "redact/redact.h", "instance/netns.h", "instance/spec.h",
                   "guest/proto.h", "guest/tree.h", "io/budget.h", "io/proto.h"),
    "hostd/instance": ("base", "instance", "guest/proto.h", "guest/tree.h", "redact/proto.h"),
    "hostd/guest": ("base", "guest"),
    "hostd/build": ("base", "build"),
    "hostd/cli": ("base", "wire", "api", "cli", "guest/proto.h", "guest/tree.h", "guest/tree_list.h", "guest/tree_tar.h", "io/proto.h"),
}

SPDX = "SPDX-License-Identifier: GPL-2.0-or-later"
SPDX_FILES = re.compile(r"\.(c|h|sh|py|conf|ac|inc|am|service|socket|slice|in|[158])$|^(quickstart|check|\.ci/run|tests/lint/run)$")

FUNCTION_LINES, C_LINES, H_LINES, PARAMETERS, INCLUDES = 100, 800, 200, 6, 16
# Tables may be as long as what they list.
LENGTH_EXEMPT = {"hostd/api/method.c"}
# What calls the kernel by many doors needs a header for each: namespaces, capabilities, limits, signals, mounts, descriptors.
# What opens all parts needs one of each.
INCLUDES_EXEMPT = {"hostd/core/manager.c", "hostd/build/jail.c", "hostd/guest/child.c", "hostd/instance/attach.c"}

BANNED = re.compile(r"(?<![\w.>])(system|popen|v?sprintf|strcpy|strcat|gets|atoi|atol|alloca|strdupa|tmpnam|tempnam|mktemp)\s*\(")
# Directories that everybody may write to. Exempt: hostd-build, whose jail mounts a tmpfs of its own there; what is inside an instance.
TMP_PATH = re.compile(r'"[^"\n]*(?<![\w/])/(var/)?tmp\b')
TMP_EXEMPT = re.compile(r"^hostd/(build|guest)/")

# Any public host name, with or without a scheme: hosts come from the machine's own configuration at run time.
HOSTS = re.compile(r"(?<![\w.@/-])((?:[a-z0-9-]+\.)+(?:org|com|io|dev|net))(?![\w.-])")
HOSTS_ALLOWED = re.compile(r"(^|\.)(example\.(org|com|net)|freedesktop\.org)$")
# Forges and endpoints of models, which an operator can read and change. Where packages come from is never among them.
CATEGORIES = re.compile(r"^categories/\w+\.conf$")
PACKAGES = re.compile(r"registr|packag|pkg|pypi|npm|crates|gems|maven|golang|docker|debian|ubuntu|mirror|archive|dist\b")
# Written so that this file does not match itself.
MACHINE_PATHS = re.compile(r"(?<![\w/.$}])/(wor[k]|home/(?!agent|me\b|user\b|[A-Z$<\"'])[a-z]+|Users)/")
URL = re.compile(r"https?://([^\s/:\"'<>)`\\]+)")
# Names that are nobody's, this machine, and what a variable holds.
URL_ALLOWED = re.compile(r"^(([\w-]+\.)*(example|invalid|test|localhost|example\.(com|org|net))|127\.\d+\.\d+\.\d+|10\.\d+\.\d+\.\d+|\[.*|[\w.]*\$.*|%s.*|"
                         r"u)$")  # u: a user before a password, in a test
TEXT_EXEMPT = re.compile(r"^(LICENSE|debian/copyright$|tests/fuzz/corpus/|build-aux/|configure|Makefile\.in|aclocal)")

# Schemas and the manual page that must explain each key.
SCHEMAS = {
    "hostd/model/host_config.c": "docs/man/hostd.conf.5",
    "hostd/model/instance_config.c": "docs/man/hostd-instance.conf.5",
    "quotas/limit.c": "docs/man/hostd-instance.conf.5",
    "hostd/model/policy_text.c": "docs/man/hostd-policy.conf.5",
    "hostd/build/recipe.c": "docs/man/hostd-template.conf.5",
}

# ---- helpers -----------------------------------------------------------------------------------------------------------------

FILES = [f for f in open(sys.argv[1]).read().split("\n") if f and os.path.isfile(f)]
CODE = [f for f in FILES if re.match(r"(hostd|network|quotas)/.*\.[ch]$", f)]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def without_comments(text):
    """Comments become spaces; strings and lines stay where they are."""
    def blank(m):
        return m.group(0) if m.group(0)[0] in "\"'" else re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', blank, text, flags=re.S)


def without_strings(text):
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', without_comments(text))


def lines_matching(paths, pattern, prepare, exempt=None):
    for path in paths:
        if exempt and exempt.match(path):
            continue
        for n, line in enumerate(prepare(read(path)).split("\n"), 1):
            m = pattern.search(line)
            if m:
                yield f"{path}:{n}: {m.group(0).strip()}"


# ---- rules -------------------------------------------------------------------------------------------------------------------

def layering():
    for path in CODE:
        folder = next((f for f in LAYERS if path.startswith(f + "/")), None)
        if not folder:
            yield f"{path} belongs to no layer: add its folder to the table"
            continue
        for n, name in re.findall(r'^()#\s*include\s+"([^"]+)"', read(path), flags=re.M):
            if name == "config.h":
                continue
            if "/" not in name:
                yield f'{path} includes "{name}": write the folder'
            elif name not in LAYERS[folder] and name.split("/")[0] not in LAYERS[folder]:
                yield f'{path} includes "{name}": {folder} may use {", ".join(LAYERS[folder])}'


def includes_exist():
    for path in CODE:
        for name in re.findall(r'^#\s*include\s+"([^"]+)"', read(path), flags=re.M):
            if not any(os.path.isfile(p + name) for p in ("hostd/", "", os.path.dirname(path) + "/")) and name != "config.h":
                yield f'{path} includes "{name}", which is nowhere'


def spdx():
    for path in FILES:
        if SPDX_FILES.search(path) and not path.startswith(("tests/fuzz/corpus/", "build-aux/")):
            head = read(path).split("\n")[:2]
            if not any(SPDX in line for line in (head if head[0].startswith("#!") else head[:1])):
                yield f"{path} does not begin with {SPDX}"


def file_purpose():
    """A comment right after the license says what the file is."""
    for path in CODE:
        lines = read(path).split("\n")
        if len(lines) < 2 or not lines[1].startswith("//"):
            yield f"{path} does not say what it is in its second line"


def functions():
    sources = [f for f in CODE if f.endswith(".c")]
    out = subprocess.run(["ctags", "--languages=C", "--c-kinds=f", "--fields=+neS", "--output-format=json", "-f", "-", "-L", "-"],
                         input="\n".join(sources), capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def function_length():
    for f in functions():
        n = f["end"] - f["line"] + 1
        if n > FUNCTION_LINES:
            yield f'{f["path"]}:{f["line"]}: {f["name"]} has {n} lines, more than {FUNCTION_LINES}'


def parameters():
    for f in functions():
        signature = f.get("signature", "()")[1:-1]
        depth, n = 0, 1
        for c in signature:
            depth += (c == "(") - (c == ")")
            n += c == "," and depth == 0
        n -= len(re.findall(r"size_t n_\w+", signature))  # an array and its size are one thing
        if n > PARAMETERS:
            yield f'{f["path"]}:{f["line"]}: {f["name"]} has {n} parameters, more than {PARAMETERS}'


def file_length():
    for path in CODE:
        n, limit = read(path).count("\n"), C_LINES if path.endswith(".c") else H_LINES
        if n > limit and path not in LENGTH_EXEMPT:
            yield f"{path} has {n} lines, more than {limit}"


def includes():
    for path in CODE:
        n = len(re.findall(r"^#\s*include\s", read(path), flags=re.M))
        if path.endswith(".c") and n > INCLUDES and path not in INCLUDES_EXEMPT:
            yield f"{path} includes {n} files, more than {INCLUDES}"


def banned_calls():
    yield from lines_matching(CODE, BANNED, without_strings)


def tmp_paths():
    yield from lines_matching(CODE, TMP_PATH, without_comments, TMP_EXEMPT)


def left_behind():
    texts = [f for f in FILES if not TEXT_EXEMPT.match(f)]
    yield from lines_matching(texts, re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b"), str)


def host_names():
    for path in FILES:
        if TEXT_EXEMPT.match(path):
            continue
        for n, line in enumerate(read(path).split("\n"), 1):
            for host in HOSTS.findall(line):
                if not HOSTS_ALLOWED.search(host) and (not CATEGORIES.match(path) or PACKAGES.search(host)):
                    yield f"{path}:{n}: {host}"


def machine_paths():
    yield from lines_matching([f for f in FILES if not TEXT_EXEMPT.match(f)], MACHINE_PATHS, str)


def urls():
    for path in FILES:
        if TEXT_EXEMPT.match(path):
            continue
        for n, line in enumerate(read(path).split("\n"), 1):
            for host in URL.findall(line):
                if not URL_ALLOWED.match(host):
                    yield f"{path}:{n}: {host}"


def method_rows():
    table = read("hostd/api/method.c")
    prefixes = dict(re.findall(r'^#define (\w+) "(io\.hostd\.[\w.]*)"', table, flags=re.M))
    for ident, prefix, name, words in re.findall(r'\[(METHOD_\w+)\] = \{(?:(\w+) )?"([^"]+)", "([^"]+)"', table):
        yield ident, prefixes.get(prefix, "") + name, words


def methods_documented():
    api, page = read("docs/api.md"), read("docs/man/hostctl.1")
    identifiers = set(re.findall(r"^\s+(METHOD_\w+),", read("hostd/api/method.h"), flags=re.M))
    handlers = set(re.findall(r"\[(METHOD_\w+)\] =", read("hostd/core/handle.c")))
    seen = set()
    for ident, name, words in method_rows():
        seen.add(ident)
        if f"\n## {name}\n" not in api:
            yield f"{name} is not in docs/api.md"
        if not re.search(rf"^\.It Cm {re.escape(words)}(\s|$)", page, flags=re.M):
            yield f"hostctl {words} is not in docs/man/hostctl.1"
    for missing in sorted(identifiers - seen):
        yield f"{missing} has no row"
    for missing in sorted(identifiers ^ handlers):
        yield f"{missing} has no handler, or a handler without a method"


def keys_documented():
    for source, page in SCHEMAS.items():
        text = read(page)
        rows = re.findall(r'^\s+(?:\[\w+\] = )?\{\s*"([a-z][a-z0-9_]*)", ?(?:SCHEMA_|"|LIMIT_|UNIT_|offsetof|[A-Z]\w+)', without_comments(read(source)), flags=re.M)
        if not rows:
            yield f"{source}: no keys were found; has the table changed its form?"
        for key in rows:
            if not re.search(rf"(?<![\w-]){key}(?![\w-])", text):
                yield f"{key} ({source}) is not in {page}"


def model_tests():
    """The security model names tests, as FILE or FILE#WORDS; each must be there and hold the words."""
    page = "docs/security-model.md"
    named = re.findall(r"`(tests/[\w./-]+)(?:#([^`]+))?`", read(page))
    if len(named) < 40:
        yield f"{page}: only {len(named)} tests were found; has it changed its form?"
    for path, words in named:
        if not os.path.exists(path):
            yield f"{page}: there is no {path}"
        elif words and words not in read(path):
            yield f"{page}: {path} does not have: {words}"
    plain = [w for w in re.findall(r"\btests/\S+", re.sub(r"`[^`]*`", "", read(page)))]
    for w in plain:
        yield f"{page}: {w} is not in backticks"


def pages_installed():
    """Each manual page is in exactly one dist_man_MANS."""
    named = []
    for path in FILES:
        if path.endswith((".am", ".inc")):
            for value in re.findall(r"^dist_man_MANS\s*\+?=((?:.*\\\n)*.*)", read(path), flags=re.M):
                named += re.findall(r"docs/man/\S+", value)
    for page in sorted(f for f in FILES if f.startswith("docs/man/")):
        if named.count(page) != 1:
            yield f"{page} is installed {named.count(page)} times"
    for page in sorted(set(named) - set(FILES)):
        yield f"{page} is installed but does not exist"


def sources_built():
    """Each source file and test is named in a Makefile.inc."""
    makefiles = "".join(read(f) for f in FILES if f.endswith((".inc", ".am")))
    for path in FILES:
        if re.match(r"(hostd|network|quotas|tests)/.*\.c$", path) and path not in makefiles:
            yield f"{path} is in no Makefile.inc"


RULES = [
    (layering, "layers include what they may"),
    (includes_exist, "included files exist"),
    (spdx, "files begin with their license"),
    (file_purpose, "files say what they are"),
    (function_length, f"functions have at most {FUNCTION_LINES} lines"),
    (parameters, f"functions have at most {PARAMETERS} parameters"),
    (file_length, f"files have at most {C_LINES} (.c) and {H_LINES} (.h) lines"),
    (includes, f"files include at most {INCLUDES} others"),
    (banned_calls, "no banned calls"),
    (tmp_paths, "no shared temporary directory in a daemon"),
    (left_behind, "nothing left for later"),
    (host_names, "no host names of others"),
    (machine_paths, "no paths of one machine"),
    (urls, "no addresses of others"),
    (methods_documented, "methods have row, handler, manual"),
    (keys_documented, "configuration keys are in their manual pages"),
    (model_tests, "the tests that the security model names exist"),
    (pages_installed, "manual pages are installed once"),
    (sources_built, "sources are built"),
]

for rule, title in RULES:
    try:
        found = list(rule())
    except FileNotFoundError as e:
        if rule in (function_length, parameters) and e.filename == "ctags":
            print(f"SKIP: lint: {title}: ctags is not installed")
            continue
        found = [str(e)]
    except (OSError, subprocess.CalledProcessError, ValueError) as e:
        found = [f"{type(e).__name__}: {e}"]
    print(f"FAILED: {title}" if found else f"ok: {title}")
    for line in found[:40]:
        print(f"    {line}")
    sys.stdout.flush()

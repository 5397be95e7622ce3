# Runs first: gets the program's two parts compiled. Compiling takes longer than
# most requests, so a host that was written to keeps the result; a host that is
# only looked at keeps nothing.
CODE = (sys.argv[sys.argv.index("--root") + 1] if "--root" in sys.argv else "") + "/var/lib/hk/agent/"


def code_name(part):
    return "%s.%s" % (part[0], sys.implementation.cache_tag)


def load(part):
    """The code of (hash, source)."""
    import marshal
    try:
        with open(CODE + code_name(part), "rb") as f:
            return marshal.load(f)
    except (OSError, EOFError, ValueError, TypeError):
        return compile(part[1], "hk", "exec")


def keep_code():
    """Keeps the compiled parts, and no others."""
    import marshal
    make_dir("/var/lib/hk/agent", 0o700)
    names = [code_name(part) for part in PARTS]
    for name in os.listdir(CODE):
        if name not in names and not name.startswith("."):
            os.unlink(CODE + name)
    for part, name in zip(PARTS, names):
        if not os.path.exists(CODE + name):
            put("/var/lib/hk/agent/" + name, marshal.dumps(compile(part[1], "hk", "exec")), 0o600, durable=False)


exec(load(PARTS[0]))

# What the host says about itself. Nothing here changes the host but for the
# cache of large files' hashes.

LARGE = 1 << 20
HASHES = "/var/lib/hk/hashes.json"
STARTED = "/run/hk/started/"
JOURNAL = "/var/lib/hk/journal"


class Hashes:
    """SHA-256 of files; those of large ones are remembered by size, times and
    inode, because a host has half a GiB of programs and facts are asked often."""

    def __init__(self):
        self.lock = Lock()
        self.known = None
        self.dirty = False

    def load(self):
        if self.known is None:
            try:
                self.known = json.loads(read(HASHES, b"{}"))
            except ValueError:
                self.known = {}

    def of(self, path, st, full=False):
        if st.st_size <= LARGE:
            return sha_of(P(path))
        key = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
        with self.lock:
            self.load()
            seen = self.known.get(path)
        if seen and seen[:4] == key and not full:
            return seen[4]
        digest = sha_of(P(path))
        self.learn(path, st, digest)
        return digest

    def learn(self, path, st, digest):
        if st.st_size <= LARGE:
            return
        with self.lock:
            self.load()
            self.known[path] = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, digest]
            self.dirty = True

    def save(self):
        with self.lock:
            if not self.dirty:
                return
            self.dirty = False
            try:
                make_dir("/var/lib/hk", 0o755)
                put(HASHES, json.dumps(self.known).encode(), 0o600, durable=False)
            except OSError:
                pass  # a cache: a full or read-only disk must not fail facts


hashes = Hashes()


def sha_of(real):
    h = sha256()
    with open(real, "rb") as f:
        while True:
            part = f.read(1 << 20)
            if not part:
                return h.hexdigest()
            h.update(part)


class Names:
    """User and group names; pwd and grp read whole files on each question."""

    def __init__(self):
        self.users, self.groups = {}, {}

    def of(self, st):
        import grp
        import pwd
        if st.st_uid not in self.users:
            try:
                self.users[st.st_uid] = pwd.getpwuid(st.st_uid).pw_name
            except KeyError:
                self.users[st.st_uid] = str(st.st_uid)
        if st.st_gid not in self.groups:
            try:
                self.groups[st.st_gid] = grp.getgrgid(st.st_gid).gr_name
            except KeyError:
                self.groups[st.st_gid] = str(st.st_gid)
        return "%s:%s" % (self.users[st.st_uid], self.groups[st.st_gid])


def file_fact(path, names, full=False):
    """ "sha256 mode owner", "dir mode owner", "link target", "absent" """
    try:
        st = os.lstat(P(path))
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    kind = st.st_mode & 0o170000
    if kind == 0o120000:
        return "link " + os.readlink(P(path))
    end = " %04o %s" % (st.st_mode & 0o7777, names.of(st))
    if kind == 0o040000:
        return "dir" + end
    if kind != 0o100000:
        return "special" + end
    try:
        return hashes.of(path, st, full) + end
    except FileNotFoundError:
        return "absent"


# The digest of the files a unit was started with. The same computation is in
# the helper STARTED_HELPER, which systemd runs; files over 1 MiB enter by what
# stat says, as hashing a kubelet at each start would cost more than its start.
def file_line(path):
    try:
        st = os.stat(P(path))
        if st.st_mode & 0o170000 != 0o100000:
            return "absent  " + path
        if st.st_size > LARGE:
            return "stat:%d:%d:%d:%d  %s" % (st.st_size, st.st_mtime_ns // 10**9, st.st_ctime_ns // 10**9,
                                             st.st_ino, path)
        return sha_of(P(path)) + "  " + path
    except OSError:
        return "absent  " + path


def file_lines(paths):
    return [file_line(p) for p in paths]


def joint(lines):
    return sha256(("\n".join(lines) + "\n").encode()).hexdigest()


def read_started(unit):
    """(digest, invocation, lines) of what a unit was started with, or None."""
    data = read(STARTED + unit)
    if not data:
        return None
    head, _, rest = data.decode("utf-8", "replace").partition("\n")
    digest, _, invocation = head.partition(" ")
    return digest, invocation, rest.splitlines()


def unit_fact(name, props):
    fact = {"active": props.get("ActiveState", ""), "enabled": props.get("UnitFileState", ""),
            "invocation": props.get("InvocationID", ""), "started": "", "disk": ""}
    seen = read_started(name)
    # Another invocation: somebody else started it since; with what, is unknown.
    if seen and fact["active"] not in ("inactive", "failed") and seen[1] in ("", fact["invocation"]):
        fact["started"] = seen[0]
        fact["disk"] = joint(file_lines([line.split("  ", 1)[1] for line in seen[2] if "  " in line]))
    return fact


UNIT_PROPS = "Id,LoadState,ActiveState,SubState,UnitFileState,InvocationID,FragmentPath,DropInPaths," \
             "NeedDaemonReload,InactiveExitTimestampMonotonic,Type,Result"


def start_show(units):
    return Spawned(["systemctl", "show", "--no-pager", "-p", UNIT_PROPS, "--"] + units)


def end_show(p, units):
    blocks, now = [], {}
    for line in p.output().decode("utf-8", "replace").splitlines() + [""]:
        if not line:
            if now:
                blocks.append(now)
            now = {}
            continue
        key, _, value = line.partition("=")
        now[key] = value
    if len(blocks) != len(units):
        raise Err("systemctl show answered for %d of %d units" % (len(blocks), len(units)), again=True)
    return dict(zip(units, blocks))


def show(units):
    return end_show(start_show(units), units) if units else {}


# Modules built into a kernel that has no module list show by what they bring.
EVIDENCE = {"br_netfilter": "/proc/sys/net/bridge/bridge-nf-call-iptables", "tun": "/dev/net/tun",
            "fuse": "/dev/fuse", "nf_conntrack": "/proc/sys/net/netfilter/nf_conntrack_max"}


def has_module(name):
    name = name.replace("-", "_")
    if os.path.isdir(P("/sys/module/" + name)) or name in EVIDENCE and os.path.exists(P(EVIDENCE[name])):
        return True
    if name in read_text("/proc/filesystems").split():
        return True
    if any(line.split(" ", 1)[0] == name for line in read_text("/proc/modules").splitlines()):
        return True
    return in_list(name, "modules.builtin")


def in_list(name, listing):
    want = "/%s.ko" % name
    for line in read_text("/lib/modules/%s/%s" % (os.uname().release, listing)).splitlines():
        if want in line.split(":", 1)[0].replace("-", "_"):
            return True
    return False


def sysctl_path(name):
    dot, slash = name.find("."), name.find("/")
    if slash < 0 or 0 <= dot < slash:
        name = name.replace("/", "\0").replace(".", "/").replace("\0", ".")
    return "/proc/sys/" + name


def sysctl_value(name):
    data = read(sysctl_path(name))
    return None if data is None else " ".join(data.decode("utf-8", "replace").split())


def links(out):
    found = {}
    for l in json.loads(out or b"[]"):
        found[l["ifname"]] = {
            "mac": l.get("address", ""), "mtu": l.get("mtu", 0), "index": l.get("ifindex", 0),
            "up": "UP" in l.get("flags", []),
            "addrs": ["%s/%d" % (a["local"], a["prefixlen"]) for a in l.get("addr_info", []) if "local" in a]}
    return found


def wireguard(out):
    """`wg show IFACE dump`; its first field is the private key, which stays here."""
    lines = [line.split("\t") for line in out.decode().splitlines()]
    if not lines or len(lines[0]) < 3:
        return None
    peers = {}
    for f in lines[1:]:
        peers[f[0]] = {"endpoint": "" if f[2] == "(none)" else f[2],
                       "allowed": [] if f[3] == "(none)" else f[3].split(","), "handshake": int(f[4])}
    return {"public": lines[0][1], "port": int(lines[0][2]), "peers": peers}


def start(argv):
    try:
        return Spawned(argv)
    except FileNotFoundError:
        return None


def entry_file(name):
    """A file name for an entry: what is not plain is written as =XX."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    out = []
    for i, c in enumerate(name.encode()):
        out.append(chr(c) if c in plain or (c == 0x2E and i > 0) else "=%02X" % c)
    return "".join(out)


def entry_name(file):
    out, i, raw = bytearray(), 0, file.encode()
    while i < len(raw):
        if raw[i] == 0x3D:
            out.append(int(raw[i + 1:i + 3], 16))
            i += 3
        else:
            out.append(raw[i])
            i += 1
    return out.decode()


def read_journal():
    found = {}
    for f in listdir(JOURNAL):
        if not f.startswith("."):
            data = read("%s/%s" % (JOURNAL, f))
            if data is not None:
                found[entry_name(f)] = b64(data)
    return found


def op_facts(q, job):
    units = q.get("units") or []
    asked = start_show(units) if units else None
    ip = start(["ip", "-j", "addr"])
    wgs = {w: start(["wg", "show", w, "dump"]) for w in q.get("wireguard") or []}
    names, full = Names(), q.get("full", False)
    files = {p: file_fact(p, names, full) for p in q.get("paths") or []}
    status = read_text("/proc/1/status")
    out = {
        "host": identity(),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
        "uptime": float(read_text("/proc/uptime", "0").split()[0]),
        "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "cgroup_v2": os.path.exists(P("/sys/fs/cgroup/cgroup.controllers")),
        "systemd": os.path.isdir(P("/run/systemd/system")),
        "capabilities": next((l.split()[1] for l in status.splitlines() if l.startswith("CapEff:")), "0"),
        "kernel": os.uname().release,
        "kernel_wg": has_module("wireguard") or in_list("wireguard", "modules.dep"),
        "files": files,
        "sysctls": {s: v for s, v in ((s, sysctl_value(s)) for s in q.get("sysctls") or []) if v is not None},
        "modules": {m: has_module(m) for m in q.get("modules") or []},
        "swap": len(read_text("/proc/swaps").splitlines()) > 1,
        "journal": read_journal() if q.get("journal") else None,
    }
    out["links"] = links(ip.output()) if ip else {}
    seen = {w: wireguard(p.output()) for w, p in wgs.items() if p}
    out["wireguard"] = {w: fact for w, fact in seen.items() if fact}
    out["units"] = {u: unit_fact(u, props) for u, props in end_show(asked, units).items()} if asked else {}
    out["now"] = time.time_ns()
    hashes.save()
    return out


def op_get(q, job):
    try:
        with open(P(q["path"]), "rb") as f:
            return {"data": b64(f.read())}
    except (FileNotFoundError, NotADirectoryError):
        raise Err("%s does not exist" % q["path"], kind="notfound")


def op_exec(q, job):
    import subprocess
    try:
        p = subprocess.Popen(q["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
    except OSError as e:
        return {"code": 127, "stdout": "", "stderr": b64(("%s: %s" % (q["argv"][0], e.strerror)).encode())}
    job.on_cancel(lambda: kill_group(p))
    try:
        out, err = p.communicate(unb64(q.get("stdin")), q["timeout"])
    except subprocess.TimeoutExpired:
        kill_group(p)
        raise Err("no end within %g s" % q["timeout"], kind="timeout", again=True)
    return {"code": code_of(p.returncode), "stdout": b64(out), "stderr": b64(err)}

# Packages, kernel, units, images.

HELPERS = "/usr/local/lib/hk"

# Called by hk's unit files: ExecStartPre=+/usr/local/lib/hk/started NAME FILES...
# The digest must be file_line's and joint's. A shell, because it starts ten
# times faster than Python and runs before every start.
STARTED_HELPER = r"""#!/bin/sh
# Written by hk: notes which bytes a unit was started with.
r=$HK_ROOT
name=$1
shift
mkdir -p "$r/run/hk/started" || exit 1
tmp=$r/run/hk/started/.$name.$$
for f in "$@"; do
    s=$(stat -Lc '%F|%s:%Y:%Z:%i' "$r$f" 2>/dev/null)
    case $s in
    "regular file|"* | "regular empty file|"*)
        t=${s#*|}
        if [ "${t%%:*}" -gt 1048576 ]; then
            printf 'stat:%s  %s\n' "$t" "$f"
        else
            h=$(sha256sum <"$r$f") && printf '%s  %s\n' "${h%% *}" "$f"
        fi
        ;;
    *) printf 'absent  %s\n' "$f" ;;
    esac
done >"$tmp" || exit 1
sum=$(sha256sum <"$tmp") || exit 1
{
    printf '%s %s\n' "${sum%% *}" "$INVOCATION_ID"
    cat "$tmp"
} >"$tmp.2" && rm -f "$tmp" && mv -f "$tmp.2" "$r/run/hk/started/$name"
"""

helpers_lock = Lock()
helpers_done = [False]


def install_helpers():
    """Puts hk's two small programs in place; before the first write only, as
    looking must leave nothing behind."""
    with helpers_lock:
        if helpers_done[0]:
            return
        make_dir(HELPERS, 0o755)
        for name, text in (("started", STARTED_HELPER), ("job", "#!%s -IS\n%s" % (sys.executable, JOB_HELPER))):
            path = "%s/%s" % (HELPERS, name)
            if read(path) != text.encode():
                put(path, text.encode(), 0o755)
        keep_code()
        helpers_done[0] = True


def missing_packages(names):
    if not names:
        return []
    _, out, _ = call(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n"] + names)
    there = {line[3:] for line in out.decode().splitlines() if line.startswith("ii ")}
    return [n for n in names if n.split(":")[0].split("=")[0] not in there]


def wait_cloud_init(job):
    """cloud-init runs apt itself on the first boot; its lock is not all it needs."""
    if not os.path.isdir(P("/run/cloud-init")) or os.path.exists(P("/run/cloud-init/disabled")):
        return
    deadline = time.monotonic() + 300
    while not os.path.exists(P("/var/lib/cloud/instance/boot-finished")) and time.monotonic() < deadline:
        code, out, _ = call(["cloud-init", "status"])
        if code == 127 or b"disabled" in out or b"done" in out or b"error" in out:
            return
        job.wait(0.5)


def apply_packages(names, job):
    todo = missing_packages(names)
    if not todo:
        return []
    wait_cloud_init(job)
    install = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confdef",
               "-o", "Dpkg::Options::=--force-confold", "install", "--no-install-recommends"] + todo
    # Without the mode, lists that cannot be fetched are a warning and exit code 0.
    update = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "APT::Update::Error-Mode=any", "update"]
    fresh = not any(n.endswith("_Packages") or ".lz4" in n or ".gz" in n for n in listdir("/var/lib/apt/lists"))
    code, err = 1, b""
    if not fresh:
        code, err = apt(install, job)
    for attempt in range(3):
        if code == 0:
            break
        if attempt:
            job.wait(2.0 * attempt)
        if b"dpkg --configure -a" in err:
            call(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], timeout=900)
        code, err = apt(update, job)
        if code == 0:
            code, err = apt(install, job)
    if code != 0:
        raise Err("installing " + " ".join(todo), stderr=tail(err), code=code, again=True)
    left = missing_packages(todo)
    if left:
        raise Err("apt-get ended well, but there is no " + " ".join(left))
    return []


def apt(argv, job):
    deadline = time.monotonic() + 300
    while True:
        code, out, err = call(argv, timeout=1800)
        if code == 0 or b"Could not get lock" not in err or time.monotonic() > deadline:
            return code, err or out
        job.wait(1.0)


def apply_modules(names):
    problems = []
    for name in names:
        if has_module(name):
            continue
        code, _, err = call(["modprobe", name])
        if code != 0 or not has_module(name):
            problems.append("kernel module %s: %s" % (name, tail(err, 300) or "modprobe exit code %d" % code))
    return problems


def apply_sysctls(values):
    problems = []
    for name in sorted(values):
        want = " ".join(values[name].split())
        if sysctl_value(name) == want:
            continue
        try:
            with open(P(sysctl_path(name)), "w") as f:
                f.write(want)
        except OSError as e:
            problems.append("sysctl %s = %s: %s" % (name, want, e.strerror))
            continue
        now = sysctl_value(name)
        if now != want:
            problems.append("sysctl %s is %s after %s was written" % (name, now, want))
    return problems


# Units.
UNIT_DIRS = ("/etc/systemd/system/", "/run/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/",
             "/usr/local/lib/systemd/system/")
ON = ("enabled", "static", "alias", "generated", "indirect", "transient")
UP = ("active", "reloading")


def systemctl(args, timeout=900):
    return call(["systemctl", "--no-pager", "--no-ask-password"] + args, timeout=timeout)


def apply_enablement(units, state, fresh):
    """Enables, disables and masks by links alone; says whether systemd must
    read them. fresh: unit files changed, so what state says may be old."""
    lists = {"unmask": [], "enable": [], "disable": [], "mask": []}
    for u in units:
        now = state[u["name"]].get("UnitFileState", "")
        if u["masked"]:
            if not now.startswith("masked"):
                lists["mask"].append(u["name"])
            continue
        if now.startswith("masked"):
            lists["unmask"].append(u["name"])
        if u["enabled"] and (fresh or now not in ON):
            lists["enable"].append(u["name"])
        elif not u["enabled"] and now in ("enabled", "enabled-runtime"):
            lists["disable"].append(u["name"])
    for verb in ("unmask", "enable", "disable", "mask"):
        if lists[verb]:
            code, _, err = systemctl(["--no-reload", verb] + lists[verb])
            if code != 0:
                raise Err("systemctl %s %s" % (verb, " ".join(lists[verb])), stderr=tail(err), code=code)
    return any(lists.values())


def reload_needed(changed, state):
    return any(p.startswith(UNIT_DIRS) for p in changed) or any(
        s.get("NeedDaemonReload") == "yes" for s in state.values())


def old_files(u, state, lines):
    """The files that changed since a running unit was started; None if that
    cannot be told apart from all."""
    seen = read_started(u["name"])
    if seen and seen[1] in ("", state.get("InvocationID", "")):
        if seen[0] == joint(lines):
            return []
        old = set(seen[2])
        return [line.split("  ", 1)[1] for line in lines if line not in old] or u["files"]
    # Nobody noted it: a file that was not touched since the unit left
    # "inactive" is what it was started with.
    up = int(state.get("InactiveExitTimestampMonotonic") or 0) / 1e6
    since = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + up
    newer = []
    for f in u["files"]:
        st = lstat(f)
        if st is not None and max(st.st_ctime, os.stat(P(f)).st_ctime if os.path.exists(P(f)) else 0) > since:
            newer.append(f)
    if not newer:
        note_started(u["name"], lines, state.get("InvocationID", ""))
    return newer


def note_started(name, lines, invocation):
    make_dir("/run/hk/started", 0o755)
    text = "%s %s\n%s" % (joint(lines), invocation, "".join(line + "\n" for line in lines))
    put(STARTED + name, text.encode(), 0o644, durable=False)


def is_program(path):
    """Whether a change of the file cannot be taken in by a reload."""
    if path.startswith(UNIT_DIRS):
        return True
    st = lstat(path)
    return is_file(st) and bool(st.st_mode & 0o111)


def verb_for(u, state, lines):
    """stop, start, restart, reload or "" for one unit."""
    active = state.get("ActiveState", "")
    if u["masked"] or not u["active"]:
        return "stop" if active in UP + ("activating",) else ""
    if active not in UP + ("activating",):
        return "restart"  # also starts, in the same transaction as the others
    old = old_files(u, state, lines) if u["files"] else []
    if old:
        return "reload" if u["reload"] and active in UP and not any(is_program(f) for f in old) else "restart"
    return "" if active in UP or u["no_block"] else "start"


def apply_units(units, changed, job):
    if not units:
        return []
    names = [u["name"] for u in units]
    state = show(names)
    stops = [n for u, n in zip(units, names) if u["masked"] and state[n]["ActiveState"] in UP + ("activating",)]
    if stops:
        run_verb(["stop"], stops)
    fresh = reload_needed(changed, state)
    if apply_enablement(units, state, fresh) or fresh:
        must(["systemctl", "daemon-reload"])
        state = show(names)
    job.check()
    lines = {u["name"]: file_lines(u["files"]) for u in units}
    verbs = {u["name"]: verb_for(u, state[u["name"]], lines[u["name"]]) for u in units}
    failed = [n for n in names if verbs[n] and state[n]["ActiveState"] == "failed"]
    if failed:
        systemctl(["reset-failed"] + failed)
    act(units, verbs)
    check_units(units, verbs, lines)
    return [n for n in names if n in stops or verbs[n]]


def act(units, verbs):
    waits = {u["name"]: not u["no_block"] for u in units}
    for verb, wait, command in (
            ("stop", True, ["stop"]), ("stop", False, ["stop"]),
            ("restart", False, ["restart", "--no-block"]), ("restart", True, ["restart"]),
            ("start", True, ["start"]),
            ("reload", False, ["reload-or-restart", "--no-block"]), ("reload", True, ["reload-or-restart"])):
        some = [n for n, v in verbs.items() if v == verb and waits[n] == wait]
        if some:
            run_verb(command, some)


def run_verb(command, names):
    code, _, err = systemctl(command + names)
    if code != 0:
        state = show(names)
        bad = [n for n in names if command[0] == "stop" or state[n]["ActiveState"] not in UP] or names
        raise unit_error(command[0], bad, err, code)


def check_units(units, verbs, lines):
    """Looks at what was started, and notes what it was started with where the
    unit did not do so itself."""
    touched = [u for u in units if verbs[u["name"]] in ("start", "restart", "reload")]
    state = show([u["name"] for u in touched])
    bad = []
    for u in touched:
        s = state[u["name"]]
        done = s["ActiveState"] in UP or s["ActiveState"] == "activating" and u["no_block"] or (
            s.get("Type") == "oneshot" and s["ActiveState"] == "inactive" and s.get("Result") == "success")
        if not done:
            bad.append(u["name"])
            continue
        if not u["files"]:
            continue
        seen = read_started(u["name"])
        if not seen or seen[0] != joint(lines[u["name"]]) or seen[1] not in ("", s.get("InvocationID", "")):
            note_started(u["name"], lines[u["name"]], s.get("InvocationID", ""))
    if bad:
        raise unit_error("start", bad, b"", 0)


def unit_error(verb, names, err, code):
    texts = [tail(err, 500)]
    for n in names[:3]:
        _, out, _ = call(["journalctl", "-u", n, "-n", "15", "--no-pager", "-o", "cat"])
        texts.append("%s: %s" % (n, tail(out, 1500)))
    return Err("%s %s" % (verb, " ".join(names)), stderr="\n".join(t for t in texts if t), code=code, again=True)


# Images.
def apply_images(images, job):
    if not images:
        return
    there = set(must(["ctr", "-n", "k8s.io", "images", "ls", "-q"], again=True).decode().split())
    todo = [i for i in images if i not in there]
    in_parallel([lambda i=i: pull(i, job) for i in todo], 3)


def pull(image, job):
    for attempt in range(4):
        if attempt:
            job.wait(2.0**attempt / 2)
        job.check()
        code, out, err = call(["crictl", "--runtime-endpoint", "unix:///run/containerd/containerd.sock", "pull", image],
                              timeout=900)
        if code == 127:
            code, out, err = call(["ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir",
                                   "/etc/containerd/certs.d", image], timeout=900)
        if code == 0:
            return []
    raise Err("pulling " + image, stderr=tail(err or out), code=code, again=True)


def op_apply(q, job):
    changed, restarted = [], []
    try:
        with Guard(q["lease"], job):
            install_helpers()
            # Packages bring users that files belong to, so they come first;
            # root's own downloads go on beside them.
            files = q.get("files") or []
            early = [f for f in files if f.get("artifact") and not f.get("keep") and f["owner"] in ("", "root:root")]
            changed += in_parallel([lambda: apply_packages(q.get("packages") or [], job),
                                    lambda: apply_artifacts(early, job)], 2)
            apply_files(files, job, changed)
            job.check()
            problems = apply_modules(q.get("modules") or []) + apply_sysctls(q.get("sysctls") or {})
            if problems:
                raise Err("kernel settings", stderr="; ".join(problems))
            restarted += apply_units(q.get("units") or [], changed, job)
            apply_images(q.get("images") or [], job)
    except Err as e:
        e.wire["applied"] = {"changed": changed, "restarted": restarted}
        raise
    return {"changed": changed, "restarted": restarted}

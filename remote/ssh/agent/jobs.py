# Jobs: work that must survive a lost connection and the death of hk. Each is a
# transient unit; what it leaves is in /run/hk/units:
#   NAME.task  whose job it is      NAME.json .in  what to run (removed at the end)
#   NAME.pid   it began             NAME.out .err  its output
#   NAME.rc    it ended             NAME.ack       hk has the result
# A result that was not taken yet is handed out again; one that was taken is
# old, and the job is run anew.
JOBS = "/run/hk/units/"
POLL = 0.05

job_locks = {}
job_locks_lock = Lock()


def job_lock(task):
    with job_locks_lock:
        return job_locks.setdefault(task, Lock())


def job_file(name, end):
    return JOBS + name + end


def job_json(name, end):
    data = read(job_file(name, end))
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None


def check_name(name):
    if not name or "/" in name or name.startswith(".") or not name.startswith("hk-"):
        raise Err("bug: %r is not a job's name" % name)


def unit_state(name):
    return show([name + ".service"])[name + ".service"]


def running(name):
    return unit_state(name)["ActiveState"] in ("active", "activating", "reloading", "deactivating")


def stop_job(name):
    systemctl(["stop", name + ".service"], timeout=120)
    if running(name):
        raise Err("job %s does not stop" % name, again=True)


def forget_job(name):
    for end in (".task", ".json", ".in", ".pid", ".out", ".err", ".rc", ".ack"):
        unlink(P(job_file(name, end)))


def stop_others(task, name):
    """One job a task: any other of the same task ends before a new one begins,
    and its result is void."""
    for f in listdir(JOBS):
        other, end = os.path.splitext(f)
        if end != ".task" or other == name:
            continue
        t = job_json(other, ".task")
        if t and t.get("task") == task:
            if running(other):
                stop_job(other)
            forget_job(other)


def start_job(q, name):
    if unit_state(name)["ActiveState"] == "failed":
        systemctl(["reset-failed", name + ".service"])
    forget_job(name)
    put(job_file(name, ".task"), json.dumps({"task": q["task"], "lease": q["lease"]}).encode(), 0o600, durable=False)
    put(job_file(name, ".in"), unb64(q.get("stdin")), 0o600, durable=False)
    spec = {"argv": q["argv"], "env": q.get("env") or [], "path": PATH, "lease": q["lease"]}
    put(job_file(name, ".json"), json.dumps(spec).encode(), 0o600, durable=False)
    must(["systemd-run", "--quiet", "--unit=" + name, "--description=hk: " + q["task"],
          "-p", "RuntimeMaxSec=%d" % max(1, q["timeout"]), "-p", "TimeoutStopSec=15",
          P(HELPERS + "/job"), P(JOBS + name)], again=True)


def job_began(q, job):
    """Makes sure the job runs or ran; says whether it was found that way."""
    name = q["unit"]
    check_name(name)
    with Guard(q["lease"], job), job_lock(q["task"]):
        install_helpers()
        make_dir(JOBS, 0o700)
        stop_others(q["task"], name)
        rc, taken = job_json(name, ".rc"), os.path.exists(P(job_file(name, ".ack")))
        if rc is not None and rc["code"] == 0 and not taken:
            return True
        if rc is None and running(name):
            return True
        if rc is not None and running(name):
            stop_job(name)  # about to end by itself
        start_job(q, name)
        return False


class Tail:
    """The last whole line of a growing file."""

    def __init__(self, path, from_end):
        self.real = P(path)
        self.pos = 0
        self.rest = b""
        if from_end:
            try:
                self.pos = os.stat(self.real).st_size
            except OSError:
                pass

    def line(self):
        try:
            size = os.stat(self.real).st_size
            if size <= self.pos:
                return ""
            with open(self.real, "rb") as f:
                f.seek(max(self.pos, size - 65536))
                data = self.rest + f.read(65536)
                self.pos = f.tell()
        except OSError:
            return ""
        lines = data.split(b"\n")
        self.rest = lines.pop()[-4096:]
        whole = [l.strip() for l in lines if l.strip()]
        return whole[-1].decode("utf-8", "replace")[:500] if whole else ""


def last(path, limit):
    try:
        with open(P(path), "rb") as f:
            size = os.fstat(f.fileno()).st_size
            f.seek(max(0, size - limit))
            return f.read(limit)
    except OSError:
        return b""


def op_run(q, job):
    name = q["unit"]
    attached = job_began(q, job)
    tails = [Tail(job_file(name, end), attached) for end in (".out", ".err")]
    looked = time.monotonic()
    while True:
        rc = job_json(name, ".rc")
        for t in tails:
            line = t.line()
            if line:
                job.log(line)
        if rc is not None:
            break
        if time.monotonic() - looked > 1:
            looked = time.monotonic()
            check_alive(q, name)
        job.wait(POLL)
    return {"code": rc["code"], "stdout": b64(last(job_file(name, ".out"), 1 << 20)),
            "stderr": b64(last(job_file(name, ".err"), 1 << 16)), "attached": attached,
            "invocation": rc["invocation"]}


def check_alive(q, name):
    pid = job_json(name, ".pid")
    if pid is not None and os.path.isdir("/proc/%d" % pid["pid"]):
        return
    state = unit_state(name)
    if state["ActiveState"] in ("active", "activating", "reloading", "deactivating"):
        return
    if job_json(name, ".rc") is not None:
        return
    err = tail(last(job_file(name, ".err"), 4000))
    if state.get("Result") == "timeout":
        raise Err("no end within %d s, stopped" % q["timeout"], kind="timeout", stderr=err)
    raise Err("job died without a result (%s)" % (state.get("Result") or "unit is gone"), kind="died", stderr=err,
              again=True)


def op_ack(q, job):
    check_name(q["unit"])
    with job_lock(q["task"]):
        if os.path.exists(P(job_file(q["unit"], ".rc"))):
            put(job_file(q["unit"], ".ack"), b"", 0o600, durable=False)
            for end in (".json", ".in"):
                unlink(P(job_file(q["unit"], end)))
    return {}

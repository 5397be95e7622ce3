# Serving: one thread a request, answers in any order.
EARLY = {"facts": op_facts, "exec": op_exec, "get": op_get}
OPS = ("facts", "exec", "get", "apply", "run", "ack", "journal", "hostkey", "identity")

later_lock = Lock()
later_done = [False]


def operation(name):
    """The function of a request; compiles the second part for the first that
    is in it."""
    if name in EARLY:
        return EARLY[name]
    with later_lock:
        if not later_done[0]:
            exec(load(PARTS[1]), globals())
            later_done[0] = True
    if name not in OPS:
        raise Err("bug: no request %r" % name)
    return globals()["op_" + name]

# What goes on when the connection is lost: a write that was begun is ended.
LASTING = ("apply", "journal", "hostkey", "identity")

out_lock = Lock()


def send(frame):
    data = json.dumps(frame).encode()
    with out_lock:
        try:
            os.set_blocking(1, True)
            write_all(1, len(data).to_bytes(4, "big") + data)
        except OSError:
            pass  # nobody listens any more


class Cancelled(Exception):
    pass


class Job:
    """One request being served."""

    def __init__(self, frame):
        self.id, self.op, self.q = frame["id"], frame["op"], frame.get("q") or {}
        self.stopped, self.hook = False, None
        self.gate = Lock()  # held until the request is cancelled
        self.gate.acquire()
        self.over = Lock()  # held until the request is served
        self.over.acquire()

    def check(self):
        if self.stopped:
            raise Cancelled()

    def wait(self, seconds):
        if self.gate.acquire(timeout=seconds):
            self.gate.release()
            raise Cancelled()

    def on_cancel(self, hook):
        self.hook = hook
        if self.stopped:
            hook()

    def cancel(self):
        if self.stopped:
            return
        self.stopped = True
        self.gate.release()
        if self.hook:
            self.hook()

    def run(self):
        try:
            self.serve()
        finally:
            self.over.release()

    def log(self, line):
        send({"id": self.id, "log": line})

    def serve(self):
        try:
            send({"id": self.id, "ok": operation(self.op)(self.q, self)})
        except Err as e:
            send({"id": self.id, "err": e.wire})
        except Cancelled:
            send({"id": self.id, "err": Err("cancelled", kind="cancelled").wire})
        except OSError as e:
            send({"id": self.id, "err": Err("%s: %s" % (e.filename or self.op, e.strerror or e)).wire})
        except Exception as e:
            import traceback
            send({"id": self.id, "err": Err("bug: %s in %s" % (e, self.op), kind="bug",
                                            stderr=tail(traceback.format_exc())).wire})


def frames(stream):
    while True:
        head = stream.read(4)
        if len(head) < 4:
            return
        body = stream.read(int.from_bytes(head, "big"))
        try:
            yield json.loads(body)
        except ValueError:
            return


def main():
    parse_args(sys.argv[1:])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    write_all(1, b"\0hk-agent\n")  # whatever a login script printed ends here
    send({"id": 0, "ok": {"python": "%d.%d.%d" % sys.version_info[:3], "uid": os.geteuid()}})
    jobs = {}
    for frame in frames(sys.stdin.buffer):
        if frame["op"] == "cancel":
            j = jobs.get(frame["q"]["id"])
            if j:
                j.cancel()
            continue
        for i in [i for i, j in jobs.items() if not j.over.locked()]:
            del jobs[i]
        j = Job(frame)
        jobs[j.id] = j
        start_new_thread(j.run, ())
    for j in jobs.values():
        if j.op not in LASTING:
            j.cancel()
    for j in jobs.values():
        j.over.acquire(timeout=1800 if j.op in LASTING else 1)
    os._exit(0)


main()

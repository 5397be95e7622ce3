# hk's program on a host. It is sent over the connection, never installed, and
# serves requests as frames (4 bytes of length, then JSON) on stdin and stdout.
# The files of this folder are one program in one name space, in two parts:
# core, facts and serve are compiled on each start, the rest when the first
# request needs it, since compiling costs more than most requests.
# Only Python's standard library; Python 3.8 or later. Starting is what most
# connections pay for, so modules that are slow to load are imported where they
# are used (subprocess, urllib, tarfile), and what threading, json, signal and
# hashlib wrap is used without them: together they take as long to load as
# Python itself.
import _signal as signal
import errno
import fcntl
import os
import sys
import time
from _thread import allocate_lock as Lock
from _thread import start_new_thread
from binascii import a2b_base64, b2a_base64

try:
    from _hashlib import openssl_sha256 as sha256
except ImportError:
    from hashlib import sha256


class JSON:
    """json's two functions on its own C parts, or on all of it should they ever
    change."""

    def __init__(self):
        try:
            import _json

            class Context:
                strict, object_hook, object_pairs_hook = True, None, None
                parse_float, parse_int, parse_constant = float, int, float

            self.scan = _json.make_scanner(Context())
            self.encode = _json.make_encoder(None, None, _json.encode_basestring_ascii, None, ":", ",", False, False,
                                             False)
            sample = {"a": [1, 2.5, None, True, "\u00e9\n"], "b": {}}
            if self.loads(self.dumps(sample)) != sample:
                raise ValueError
        except Exception:
            import json
            self.loads, self.dumps = json.loads, json.dumps

    def loads(self, data):
        text = (data.decode() if isinstance(data, bytes) else data).strip()
        try:
            value, end = self.scan(text, 0)
        except StopIteration:
            raise ValueError("no JSON")
        if end != len(text):
            raise ValueError("more than JSON")
        return value

    def dumps(self, value):
        return "".join(self.encode(value, 0))


json = JSON()

ROOT = ""  # prefix of every path; only tests set it
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def parse_args(args):
    global ROOT, PATH
    while args:
        name, value = args[0], args[1]
        args = args[2:]
        if name == "--root":
            ROOT = value
        elif name == "--path":
            PATH = value
    os.environ.clear()
    os.environ.update({"PATH": PATH, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "HOME": "/root",
                       "DEBIAN_FRONTEND": "noninteractive", "HK_ROOT": ROOT})
    os.umask(0o022)


def P(path):
    return ROOT + path


class Spawned:
    """A command whose output is waited for later, for what facts ask at once."""

    def __init__(self, argv):
        out, end = os.pipe()
        try:
            self.pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, end, 1),
                (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)])
        except OSError:
            os.close(out)
            raise
        finally:
            os.close(end)
        self.out = out

    def output(self):
        parts = []
        while True:
            part = os.read(self.out, 1 << 16)
            if not part:
                break
            parts.append(part)
        os.close(self.out)
        os.waitpid(self.pid, 0)
        return b"".join(parts)


class Err(Exception):
    """An error with what hk needs to judge it."""

    def __init__(self, message, kind="failed", stderr="", code=0, again=False, applied=None):
        Exception.__init__(self, message)
        self.wire = {"message": message, "kind": kind, "stderr": stderr, "code": code, "again": again,
                     "applied": applied}


def b64(data):
    return b2a_base64(data, newline=False).decode("ascii")


def unb64(text):
    return a2b_base64(text) if text else b""


def tail(data, limit=2000):
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return text.strip()[-limit:]


def call(argv, data=None, timeout=120, env=None):
    """Runs a command; returns (code, stdout, stderr). Never through a shell."""
    import subprocess
    try:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True)
    except OSError as e:
        return 127, b"", ("%s: %s" % (argv[0], e.strerror)).encode()
    try:
        out, err = p.communicate(data, timeout)
    except subprocess.TimeoutExpired:
        kill_group(p)
        raise Err("%s did not end within %d s" % (" ".join(argv[:3]), timeout), kind="timeout", again=True)
    return code_of(p.returncode), out, err


def kill_group(p):
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except OSError:
        pass
    p.wait()


def code_of(returncode):
    return 128 - returncode if returncode < 0 else returncode


def must(argv, timeout=120, again=False):
    code, out, err = call(argv, timeout=timeout)
    if code != 0:
        raise Err(" ".join(argv[:4]), stderr=tail(err or out), code=code, again=again)
    return out


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def read(path, default=None):
    try:
        with open(P(path), "rb") as f:
            return f.read()
    except (FileNotFoundError, NotADirectoryError):
        return default


def read_text(path, default=""):
    data = read(path)
    return default if data is None else data.decode("utf-8", "replace").strip()


def listdir(path):
    try:
        return os.listdir(P(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_dir(real):
    fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


COUNTER = [0]
COUNTER_LOCK = Lock()


def temp_name(real):
    """A name beside real that no other file has, hidden from globs like *.conf."""
    with COUNTER_LOCK:
        COUNTER[0] += 1
        n = COUNTER[0]
    head, base = os.path.split(real)
    return os.path.join(head, ".%s.hk-%d-%d" % (base[:200], os.getpid(), n))


def put(path, data, mode=0o600, durable=True, parent=True):
    """Replaces a file atomically. With parent=False the caller makes the new
    name durable, once for many files of one directory."""
    real = P(path)
    tmp = temp_name(real)
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            os.fchmod(f.fileno(), mode)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        os.rename(tmp, real)
    except BaseException:
        unlink(tmp)
        raise
    if durable and parent:
        sync_dir(os.path.dirname(real))


def unlink(real):
    try:
        os.unlink(real)
        return True
    except FileNotFoundError:
        return False


def make_dir(path, mode):
    try:
        os.makedirs(P(path), mode)
    except FileExistsError:
        pass


# The lock and the lease. Writers of one lease share the lock; who brings a
# newer lease waits until the older one's writes are done, raises the number on
# the host, and from then on the older one is refused. So a computer that wakes
# up after its lease was taken over cannot write any more.
LOCK = "/run/hk/lock"
IDENTITY = "/etc/hk/host.json"


def identity():
    data = read(IDENTITY)
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        raise Err("%s is damaged" % IDENTITY)


class Guard:
    """with Guard(lease, job): everything inside may write on the host."""

    def __init__(self, lease, job):
        self.lease, self.job = lease, job

    def __enter__(self):
        make_dir("/run/hk", 0o700)
        self.fd = os.open(P(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.enter()
        except BaseException:
            os.close(self.fd)
            raise

    def enter(self):
        while True:
            self.lock(fcntl.LOCK_SH)
            me = identity()
            if me is None or me.get("lease", 0) == self.lease:
                return
            self.refuse(me)
            self.lock(fcntl.LOCK_EX)
            me = identity()
            if me is not None and me.get("lease", 0) < self.lease:
                me["lease"] = self.lease
                put(IDENTITY, json.dumps(me).encode(), 0o600)

    def refuse(self, me):
        if me.get("lease", 0) > self.lease:
            raise Err("the host has seen lease %d, ours is %d" % (me["lease"], self.lease), kind="stale")

    def lock(self, how):
        deadline = time.monotonic() + 900
        while True:
            try:
                return fcntl.flock(self.fd, how | fcntl.LOCK_NB)
            except OSError as e:
                if e.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise
            self.job.check()
            if time.monotonic() > deadline:
                raise Err("another hk holds the host's lock", again=True)
            time.sleep(0.02)

    def __exit__(self, *exc):
        os.close(self.fd)

# Files: written beside their place, checked by hash, renamed into it.

ARTIFACTS = "/var/lib/hk/artifacts"
STAMPS = "/var/lib/hk/artifacts.json"


def owner_ids(owner):
    """(uid, gid) of "user[:group]"; a user alone means with its own group."""
    import grp
    import pwd
    user, _, group = (owner or "root:root").partition(":")
    try:
        if user.isdigit():
            uid, gid = int(user), int(user)
        else:
            entry = pwd.getpwnam(user)
            uid, gid = entry.pw_uid, entry.pw_gid
        if group:
            gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
        return uid, gid
    except KeyError:
        raise Err("no such user or group: %s" % owner)


def lstat(path):
    try:
        return os.lstat(P(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_dir(st):
    return st is not None and st.st_mode & 0o170000 == 0o040000


def is_file(st):
    return st is not None and st.st_mode & 0o170000 == 0o100000


def parent(path):
    make_dir(os.path.dirname(path), 0o755)


def set_meta(real, st, mode, ids):
    """Makes mode and owner of what exists right; says whether that was needed."""
    changed = False
    if (st.st_uid, st.st_gid) != ids:
        os.chown(real, ids[0], ids[1])
        changed = True
    if changed or st.st_mode & 0o7777 != mode:
        os.chmod(real, mode)
        changed = True
    return changed


def remove(path):
    st = lstat(path)
    if st is None:
        return False
    if not is_dir(st):
        return unlink(P(path))
    if path.rstrip("/").count("/") < 2:
        raise Err("%s is too near the root to be removed" % path)
    import shutil
    shutil.rmtree(P(path))
    return True


def ensure_dir(f):
    st, ids = lstat(f["path"]), owner_ids(f["owner"])
    if st is not None and not is_dir(st):
        raise Err("%s is in the way of a directory" % f["path"])
    if st is None:
        parent(f["path"])
        os.mkdir(P(f["path"]), 0o700)
        st = lstat(f["path"])
        set_meta(P(f["path"]), st, f["mode"], ids)
        return True
    return set_meta(P(f["path"]), st, f["mode"], ids)


def ensure_link(f):
    st, real = lstat(f["path"]), P(f["path"])
    if st is not None and st.st_mode & 0o170000 == 0o120000 and os.readlink(real) == f["link"]:
        return False
    if is_dir(st):
        raise Err("directory %s is in the way of a link" % f["path"])
    parent(f["path"])
    tmp = temp_name(real)
    os.symlink(f["link"], tmp)
    os.rename(tmp, real)
    return True


def sweep(real):
    """Removes what a power cut left beside a file: our temporary files whose
    writer is gone."""
    head, base = os.path.split(real)
    start = ".%s.hk-" % base[:200]
    for name in os.listdir(head):
        if name.startswith(start):
            pid = name[len(start):].partition("-")[0]
            if not os.path.isdir("/proc/" + pid):
                unlink(os.path.join(head, name))


class Pending:
    """A file written beside its place. Many of them are written first and then
    made durable together, which costs the disk one flush instead of many."""

    def __init__(self, f, ids):
        self.f, self.real, self.ids = f, P(f["path"]), ids
        sweep(self.real)
        self.tmp = temp_name(self.real)
        self.fd = os.open(self.tmp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def finish(self, want):
        os.fsync(self.fd)
        os.lseek(self.fd, 0, os.SEEK_SET)
        h = sha256()
        while True:
            part = os.read(self.fd, 1 << 20)
            if not part:
                break
            h.update(part)
        if h.hexdigest() != want:
            raise Err("%s: what was written has hash %s, not %s" % (self.f["path"], h.hexdigest(), want))
        os.fchown(self.fd, self.ids[0], self.ids[1])
        os.fchmod(self.fd, self.f["mode"])
        os.rename(self.tmp, self.real)
        hashes.learn(self.f["path"], os.fstat(self.fd), want)
        self.tmp = None

    def close(self):
        os.close(self.fd)
        if self.tmp:
            unlink(self.tmp)


def same_content(path, st, want):
    return is_file(st) and hashes.of(path, st) == want


def apply_contents(files, job):
    """Files whose bytes hk sent. Returns the paths touched."""
    changed, pending = [], []
    try:
        for f in files:
            st, ids = lstat(f["path"]), owner_ids(f["owner"])
            if is_dir(st):
                raise Err("directory %s is in the way of a file" % f["path"])
            data = unb64(f.get("content"))
            want = sha256(data).hexdigest()
            if want != f["sha256"]:
                raise Err("%s came over with another hash" % f["path"], again=True)
            if (is_file(st) and st.st_size == len(data) and same_content(f["path"], st, want)):
                if set_meta(P(f["path"]), st, f["mode"], ids):
                    changed.append(f["path"])
                continue
            parent(f["path"])
            p = Pending(f, ids)
            pending.append((p, want))
            write_all(p.fd, data)
        job.check()
        for p, want in pending:
            p.finish(want)
            changed.append(p.f["path"])
    finally:
        for p, _ in pending:
            p.close()
    for d in {os.path.dirname(p.real) for p, _ in pending}:
        sync_dir(d)
    return changed


def apply_files(files, job, changed):
    contents, artifacts = [], []
    for f in files:
        if f.get("absent") and remove(f["path"]):
            changed.append(f["path"])
    for f in files:
        job.check()
        if f.get("absent"):
            continue
        if f.get("keep") and lstat(f["path"]) is not None:
            continue
        if f.get("link"):
            if ensure_link(f):
                changed.append(f["path"])
        elif f.get("dir"):
            if ensure_dir(f):
                changed.append(f["path"])
        elif f.get("artifact"):
            artifacts.append(f)
        else:
            contents.append(f)
    changed += apply_artifacts(artifacts, job)
    changed += apply_contents(contents, job)


# Artifacts: the host fetches them itself, each download once.
class Stamps:
    """What a member taken out of an archive hashed to, for artifacts whose
    declaration does not say."""

    def __init__(self):
        self.lock = Lock()

    def load(self):
        try:
            return json.loads(read(STAMPS, b"{}"))
        except ValueError:
            return {}

    def get(self, f):
        seen = self.load().get(f["path"])
        a = f["artifact"]
        return seen[2] if seen and seen[:2] == [a["sha256"], a["member"]] else ""

    def set(self, f, digest):
        with self.lock:
            known = self.load()
            known[f["path"]] = [f["artifact"]["sha256"], f["artifact"]["member"], digest]
            make_dir("/var/lib/hk", 0o755)
            put(STAMPS, json.dumps(known).encode(), 0o600, durable=False)


stamps = Stamps()


def wanted_hash(f):
    a = f["artifact"]
    if a["file_sha256"]:
        return a["file_sha256"]
    return stamps.get(f) if a["member"] else a["sha256"]


def apply_artifacts(files, job):
    changed, groups = [], {}
    for f in files:
        st, want = lstat(f["path"]), wanted_hash(f)
        if is_dir(st):
            raise Err("directory %s is in the way of a file" % f["path"])
        if want and is_file(st) and hashes.of(f["path"], st) == want:
            if set_meta(P(f["path"]), st, f["mode"], owner_ids(f["owner"])):
                changed.append(f["path"])
            continue
        groups.setdefault(f["artifact"]["sha256"], []).append(f)
    changed += in_parallel([lambda fs=fs: fetch(fs, job) for fs in groups.values()], 4)
    hashes.save()
    return changed


def in_parallel(jobs, width):
    """Runs functions that return lists in at most width threads; joins the lists;
    the first error is raised after all have ended."""
    import threading
    out, errors, todo, lock = [], [], list(jobs), Lock()

    def worker():
        while True:
            with lock:
                if not todo or errors:
                    return
                one = todo.pop(0)
            try:
                got = one()
                with lock:
                    out.extend(got or [])
            except Exception as e:
                with lock:
                    errors.append(e)

    threads = [threading.Thread(target=worker) for _ in range(min(width, len(todo)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return out


def fetch(files, job):
    """Downloads one artifact and puts all files that come out of it in place."""
    a, whole = files[0]["artifact"], [f for f in files if not f["artifact"]["member"]]
    members = [f for f in files if f["artifact"]["member"]]
    if whole and not members and len(whole) == 1:
        f = whole[0]
        parent(f["path"])
        p = Pending(f, owner_ids(f["owner"]))
        try:
            download(a, p.fd, job)
            p.finish(a["sha256"])
        finally:
            p.close()
        return [f["path"]]
    make_dir(ARTIFACTS, 0o700)
    real = P("%s/%s" % (ARTIFACTS, a["sha256"]))
    tmp = temp_name(real)  # a name of its own: another request may want other members of it now
    try:
        fd = os.open(tmp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            download(a, fd, job)
        finally:
            os.close(fd)
        for f in whole:
            place(f, open(tmp, "rb"), a["sha256"])
        if members:
            extract(tmp, members, a, job)
    finally:
        unlink(tmp)
    return [f["path"] for f in files]


def place(f, source, want):
    parent(f["path"])
    p = Pending(f, owner_ids(f["owner"]))
    try:
        h = sha256()
        while True:
            part = source.read(1 << 20)
            if not part:
                break
            h.update(part)
            write_all(p.fd, part)
        if want and h.hexdigest() != want:
            raise Err("%s has hash %s, not %s" % (f["path"], h.hexdigest(), want))
        p.finish(h.hexdigest())
        return h.hexdigest()
    finally:
        source.close()
        p.close()


def member_name(name):
    name = os.path.normpath("/" + name)
    return name.lstrip("/")


def extract(tmp, members, a, job):
    import tarfile
    want = {}
    for f in members:
        want.setdefault(member_name(f["artifact"]["member"]), []).append(f)
    with tarfile.open(tmp, "r|*") as tar:
        for m in tar:
            job.check()
            fs = want.pop(member_name(m.name), None)
            if fs is None:
                continue
            if not m.isreg():
                raise Err("%s: %s is not a plain file" % (a["name"], m.name))
            for f in fs:
                source = tar.extractfile(m) if f is fs[0] else open(P(fs[0]["path"]), "rb")
                stamps.set(f, place(f, source, f["artifact"]["file_sha256"]))
            if not want:
                return
    raise Err("%s: no %s in the archive" % (a["name"], ", ".join(sorted(want))))


def download(a, fd, job):
    """Tries each URL in order, and all of them again while that can help."""
    for attempt in range(4):
        if attempt:
            job.wait(0.5 * 2**attempt * (0.75 + os.urandom(1)[0] / 512))
        errors, hope = [], False
        for url in a["urls"]:
            problem, again = download_from(url, a["sha256"], fd, job)
            if not problem:
                return
            errors.append("%s: %s" % (url, problem))
            hope = hope or again
        if not hope:
            break
    raise Err("downloading %s" % a["name"], stderr="; ".join(errors), again=hope)


def download_from(url, want, fd, job):
    """(problem, whether trying again can help); ("", _) if the bytes are there."""
    import http.client
    import urllib.error
    import urllib.request
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    h = sha256()
    try:
        answer = urllib.request.urlopen(url, timeout=30)
    except urllib.error.HTTPError as e:
        return "HTTP %d" % e.code, e.code in (408, 425, 429) or e.code >= 500
    except (OSError, http.client.HTTPException) as e:
        return str(getattr(e, "reason", None) or e), True
    except ValueError as e:
        return str(e), False
    with answer:
        while True:
            job.check()
            try:
                part = answer.read(1 << 20)
            except (OSError, http.client.HTTPException) as e:
                return str(e), True
            if not part:
                break
            h.update(part)
            write_all(fd, part)
    if h.hexdigest() != want:
        return "its hash is %s, not %s" % (h.hexdigest(), want), False
    return "", False

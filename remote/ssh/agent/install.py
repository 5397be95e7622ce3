# First contact, and the host's own journal.
KEY = "/etc/ssh/ssh_host_ed25519_key"
SSHD_DROPIN = "/etc/ssh/sshd_config.d/00-hk.conf"


def op_hostkey(q, job):
    """Makes the final key the only one sshd has."""
    make_dir("/etc/ssh/sshd_config.d", 0o755)
    put(KEY, unb64(q["private"]), 0o600)
    put(KEY + ".pub", q["public"].encode() + b"\n", 0o644)
    put(SSHD_DROPIN, b"# Written by hk: its pinned key is the only one.\nHostKey " + KEY.encode() + b"\n", 0o644)
    for name in listdir("/etc/ssh"):
        if name.startswith("ssh_host_") and not name.startswith("ssh_host_ed25519_key"):
            unlink(P("/etc/ssh/" + name))
    must(["sshd", "-t"])
    code, _, err = systemctl(["reload-or-restart", "ssh.service"])
    if code != 0:
        code, _, err2 = systemctl(["reload-or-restart", "sshd.service"])
        if code != 0:
            raise Err("reloading sshd", stderr=tail(err + err2), code=code, again=True)
    return {}


def op_identity(q, job):
    """Writes the installation file if there is none; returns the one there is."""
    me = identity()
    if me is None and q.get("write"):
        make_dir("/etc/hk", 0o755)
        put(IDENTITY, json.dumps(q["identity"]).encode(), 0o600)
        me = identity()
    return {"identity": me}


def op_journal(q, job):
    with Guard(q["lease"], job):
        make_dir("/var/lib/hk", 0o755)
        make_dir(JOURNAL, 0o700)
        for name, data in sorted(q["entries"].items()):
            path = "%s/%s" % (JOURNAL, entry_file(name))
            if data is None:
                unlink(P(path))
            else:
                put(path, unb64(data), 0o600, parent=False)
        sync_dir(P(JOURNAL))
    return {}

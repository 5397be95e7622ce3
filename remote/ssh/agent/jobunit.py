# The program a job's unit runs: it has the job's argv and environment in a
# file, so that nothing is quoted for systemd and no secret is on a command
# line, and leaves the exit code in a file, where it is found after the unit,
# the connection and hk itself are gone.
JOB_HELPER = r'''# Written by hk: runs one job.
import json
import os
import sys

base = sys.argv[1]


def leave(name, value):
    with open(base + name + ".tmp", "w") as f:
        json.dump(value, f)
    os.rename(base + name + ".tmp", base + name)


os.umask(0o077)
spec = json.load(open(base + ".json"))
invocation = os.environ.get("INVOCATION_ID", "")
leave(".pid", {"pid": os.getpid(), "invocation": invocation})
env = {"PATH": spec["path"], "HOME": "/root", "LANG": "C.UTF-8", "INVOCATION_ID": invocation,
       "HK_LEASE": str(spec["lease"])}
env.update(e.split("=", 1) for e in spec["env"] if "=" in e)
out = os.open(base + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
err = os.open(base + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
pid = os.fork()
if pid == 0:
    try:
        os.dup2(os.open(base + ".in", os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.umask(0o022)
        os.chdir("/")
        os.execvpe(spec["argv"][0], spec["argv"], env)
    except BaseException as e:
        os.write(err, ("%s: %s\n" % (spec["argv"][0], e)).encode())
    os._exit(127)
_, status = os.waitpid(pid, 0)
code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
leave(".rc", {"code": code, "invocation": invocation})
sys.exit(code)
'''

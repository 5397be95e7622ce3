package ssh

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// checkNames lists global names that a part of the program uses and nothing
// defines; Python itself would say so only when the line runs on a host.
const checkNames = `
import builtins, dis, sys, types
def codes(c):
    yield c
    for k in c.co_consts:
        if isinstance(k, types.CodeType):
            yield from codes(k)
r = sys.stdin.buffer
n = r.readline().split()
known, bad = set(dir(builtins)) | {"PARTS", "sys", "os", "put", "make_dir"}, set()
for part in (r.read(int(n[0])), r.read(int(n[1])), r.read(int(n[3]))):
    top = compile(part, "hk", "exec")
    for c in codes(top):
        known |= {i.argval for i in dis.get_instructions(c) if i.opname == "STORE_GLOBAL" or c is top and i.opname == "STORE_NAME"}
    for c in codes(top):
        bad |= {i.argval for i in dis.get_instructions(c) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME") and i.argval not in known}
print(" ".join(sorted(bad)))
`

func TestProgramKnowsItsNames(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs /usr/bin/python3, as every host does")
	}
	cmd := exec.Command("/usr/bin/python3", "-I", "-S", "-c", checkNames)
	cmd.Stdin = strings.NewReader(string(program()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if s := strings.TrimSpace(string(out)); s != "" {
		t.Errorf("names that nothing defines: %s", s)
	}
}

// The one text that passes a shell must survive single quotes.
func TestBootHasNoQuote(t *testing.T) {
	if strings.ContainsAny(boot, "'\n\\$`") {
		t.Errorf("boot cannot stand in single quotes: %s", boot)
	}
}

package fp_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"hk/cache/fp"
)

// The encoding is fixed: another one would make every task of every cluster
// stale, so it needs a new fp.Schema.
func TestGolden(t *testing.T) {
	p := &fp.Parts{}
	p.Int("recipe", 1)
	p.Text("config:kubernetes.version", "v1.37.2")
	p.Opaque("file:/etc/x", []byte{0, 1, 2})
	p.Digest("need:etcd-setup.ca", fp.Output{"key": "abc"}.Digest())
	const want = "53e7f78a90ea047e226e912d3a3dca36d00f9b9455952cdc0e23d96f16c621b5"
	if got := p.Fingerprint().String(); got != want {
		t.Errorf("fingerprint %s, want %s", got, want)
	}
	if got := fp.Output(nil).Digest().Short(); got != "df3f619804a92fdb" {
		t.Errorf("empty output %s", got)
	}
	if (fp.Output{}).Digest() != fp.Output(nil).Digest() {
		t.Errorf("an empty and a nil output differ")
	}
}

type labelled struct {
	Label, Value string
	How          int
}

func parts(list []labelled) *fp.Parts {
	p := &fp.Parts{}
	for _, l := range list {
		if l.How == 0 {
			p.Text(l.Label, l.Value)
		} else {
			p.Opaque(l.Label, []byte(l.Value))
		}
	}
	return p
}

func drawParts(t *rapid.T, name string) []labelled {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) labelled {
		return labelled{
			rapid.StringMatching(`[a-c:]{1,3}`).Draw(t, "label"), rapid.StringMatching(`[a-c:]{0,3}`).Draw(t, "value"),
			rapid.IntRange(0, 1).Draw(t, "how"),
		}
	}), 0, 4, func(l labelled) string { return l.Label }).Draw(t, name)
}

// Two inputs have the same fingerprint exactly if they have the same labels
// with the same values, in whatever order they were added.
func TestFingerprintIsTheInputs(t *testing.T) {
	values := func(list []labelled) map[string]string {
		m := map[string]string{}
		for _, l := range list {
			m[l.Label] = l.Value
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		a := drawParts(t, "a")
		b := rapid.OneOf(rapid.Permutation(a), rapid.Custom(func(t *rapid.T) []labelled { return drawParts(t, "b") })).Draw(t, "b")
		same := maps.Equal(values(a), values(b))
		if got := parts(a).Fingerprint() == parts(b).Fingerprint(); got != same {
			t.Fatalf("%v and %v: equal fingerprints %v, equal inputs %v", a, b, got, same)
		}
	})
}

func TestTwiceTheSameLabelPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Errorf("no panic")
		}
	}()
	p := &fp.Parts{}
	p.Text("a", "1")
	p.Text("a", "2")
}

func TestOutputRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := fp.Output(rapid.MapOfN(rapid.StringN(0, 3, -1), rapid.StringN(0, 3, -1), 0, 4).Draw(t, "o"))
		got, err := fp.DecodeOutput(o.Encode())
		if err != nil || !maps.Equal(got, o) {
			t.Fatalf("%v comes back as %v, %v", o, got, err)
		}
	})
}

func TestOutputSize(t *testing.T) {
	if err := (fp.Output{"a": string(make([]byte, fp.MaxOutput))}).Check(); err == nil {
		t.Errorf("an output of more than %d bytes is accepted", fp.MaxOutput)
	}
}

func TestCombine(t *testing.T) {
	a, b := fp.Output{"a": "1"}.Digest(), fp.Output{"a": "2"}.Digest()
	if fp.Combine([]fp.OutputDigest{a}) != a {
		t.Errorf("one digest is not itself")
	}
	if fp.Combine([]fp.OutputDigest{a, b}) == fp.Combine([]fp.OutputDigest{b, a}) {
		t.Errorf("the order does not matter")
	}
}

// FuzzOutput: only canonical bytes are an output.
func FuzzOutput(f *testing.F) {
	f.Add(fp.Output{"a": "b", "c": ""}.Encode())
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := fp.DecodeOutput(b)
		if err != nil || len(b) == 0 {
			return
		}
		if string(o.Encode()) != string(b) {
			t.Fatalf("%q is read as %v, which is %q", b, o, o.Encode())
		}
	})
}

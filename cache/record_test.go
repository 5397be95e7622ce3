package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hk/cache/fp"
)

func sample() *fp.Record {
	return &fp.Record{
		Status: fp.Done, Fingerprint: fp.Fingerprint{1}, Output: fp.Output{"a": "b"},
		Parts:    []fp.Part{{Label: "config:x", Text: "1"}, {Label: "recipe", Digest: [8]byte{9}}},
		Observed: map[string]string{"file:/x": "00", "unit:y": "active"},
		Drift:    "/x changed", GoodUntil: time.Unix(9, 8).UTC(), Started: time.Unix(7, 6).UTC(), Took: 5,
		RunID: "r", Reason: "because", Error: "none", Attempt: 3, Generation: 2,
	}
}

// Every single flipped byte of a record is noticed.
func TestEveryFlipIsNoticed(t *testing.T) {
	v := encodeRecord("p.k/h", sample())
	for i := range v {
		for bit := range 8 {
			w := bytes.Clone(v)
			w[i] ^= 1 << bit
			if _, err := decodeRecord("p.k/h", w); err == nil {
				t.Fatalf("byte %d, bit %d", i, bit)
			}
		}
	}
	if _, err := decodeRecord("p.k/i", v); err == nil {
		t.Errorf("the record of another task is taken")
	}
}

// What a record looks like on disk is fixed: files of this version are read by
// every later one.
func TestRecordBytes(t *testing.T) {
	golden := filepath.Join("testdata", "record-v1.bin")
	v := encodeRecord("p.k/h", sample())
	want, err := os.ReadFile(golden)
	if os.IsNotExist(err) {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, v, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("%s was missing and is written", golden)
	}
	if err != nil || !bytes.Equal(v, want) {
		t.Errorf("the encoding changed without a new version (%v)", err)
	}
	got, err := decodeRecord("p.k/h", want)
	if diff := cmp.Diff(sample(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(encodeRecord("p.k/h", sample()))
	f.Add(encodeRecord("p.k/h", &fp.Record{Status: fp.Pending}))
	f.Fuzz(func(t *testing.T, v []byte) {
		if len(v) >= hotLen { // get past the checksum
			sum := checksum(v)
			v[4], v[5], v[6], v[7] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		}
		rec, err := decodeRecord("p.k/h", v)
		if err != nil {
			return
		}
		again, err := decodeRecord("p.k/h", encodeRecord("p.k/h", rec))
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if diff := cmp.Diff(rec, again); diff != "" {
			t.Fatalf("read, written, read (-first +second):\n%s", diff)
		}
	})
}

func FuzzHolder(f *testing.F) {
	f.Add([]byte(`{"pid":1,"host":"h","user":"u","command":"c","run":"r","started":"2027-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"pid":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if h := parseHolder(text); h.PID < 0 {
			t.Fatalf("%+v", h)
		}
	})
}

// FuzzPages lets the walk over a file's pages meet arbitrary bytes.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "x.db")
	b := Open(path, Options{Now: time.Now})
	done := make(chan error, 1)
	b.Cluster("uid").Commit([]fp.Change{{Name: "p.k/h", Record: sample()}}, func(err error) { done <- err })
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	_ = b.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	data = data[:6*4096]
	f.Add(data, uint16(100), byte(1), uint16(9000), byte(255))
	f.Fuzz(func(t *testing.T, data []byte, at uint16, x byte, at2 uint16, y byte) {
		if len(data) == 0 {
			return
		}
		data = bytes.Clone(data)
		data[int(at)%len(data)] ^= x
		data[int(at2)%len(data)] ^= y
		_ = (&pages{data: data}).check() // must end, and must not panic
	})
}

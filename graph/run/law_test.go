package run_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hk/graph/run"
)

func TestLawMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		sum := s.build(t, s.options())
		if sum.Ran != s.g.Len() {
			t.Fatalf("first build: %+v", sum)
		}
		if diff := cmp.Diff(s.want(), s.real); diff != "" {
			t.Errorf("end state (-want +got):\n%s", diff)
		}
		o := s.options()
		o.Verify = run.Verify(rapid.IntRange(0, 2).Draw(t, "verify"))
		sum = s.build(t, o)
		if sum.Fresh != s.g.Len() || s.calls != 0 {
			t.Fatalf("second build: %+v, ran %v", sum, s.ran())
		}
	})
}

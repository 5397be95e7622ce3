package masters

import "testing"

// BenchmarkConfig is what a no-op build pays for a master's config.
func BenchmarkConfig(b *testing.B) {
	in := config("1")
	for b.Loop() {
		configState(in)
	}
}

package ha

import "testing"

// BenchmarkEndpoint is what a no-op build pays for it on each host.
func BenchmarkEndpoint(b *testing.B) {
	in := endpointIn{three()}
	for b.Loop() {
		endpointState(in)
	}
}

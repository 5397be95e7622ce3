package workers

import (
	"testing"
)

// BenchmarkConfig is what a no-op build pays for it on each worker.
func BenchmarkConfig(b *testing.B) {
	in := configIn{Node: "demo-worker-1", MeshIP: "10.100.0.4", ProviderID: "hcloud://104", CgroupV2: true}
	for b.Loop() {
		configState(in)
	}
}

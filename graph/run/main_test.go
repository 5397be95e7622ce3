package run_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No build may leave a goroutine behind, however it ends.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

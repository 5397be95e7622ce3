package cli

import "time"

func zeroTime() time.Time { return time.Time{} }

func noEnv(string) string { return "" }

package lb

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// Config is what a load balancer does.
type Config struct {
	Algorithm string    `json:"algorithm"`
	Listen    []string  `json:"listen"` // addresses it listens on
	Services  []Service `json:"services"`
	Targets   []Target  `json:"targets"`
}

// Service is a port it listens on.
type Service struct {
	Listen        int   `json:"listen"`
	Dest          int   `json:"dest"`
	ProxyProtocol bool  `json:"proxy_protocol"`
	Check         Check `json:"check"`
}

// Check is how targets of a service are found healthy.
type Check struct {
	Protocol    string        `json:"protocol"`
	Port        int           `json:"port"`
	Interval    time.Duration `json:"interval"`
	Timeout     time.Duration `json:"timeout"`
	Retries     int           `json:"retries"`
	TLS         bool          `json:"tls"`
	Domain      string        `json:"domain"`
	Path        string        `json:"path"`
	Response    string        `json:"response"`
	StatusCodes []string      `json:"status_codes"`
}

// Target is where it sends to.
type Target struct {
	Key  string     `json:"key"`
	Addr netip.Addr `json:"addr"`
}

// Health is what a check of one target at one service found.
type Health struct {
	Key    string `json:"key"`
	Listen int    `json:"listen"`
	Status string `json:"status"` // healthy, unhealthy, unknown
	Detail string `json:"detail"`
	Code   int    `json:"code"`
}

// Files of a load balancer's folder.
func configPath(dir string) string { return filepath.Join(dir, "config.json") }
func socketPath(dir string) string { return filepath.Join(dir, "ctl.sock") }

// Write puts the config into the folder.
func Write(dir string, c Config) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(configPath(dir), b, 0o600)
}

func read(dir string) (Config, error) {
	var c Config
	b, err := os.ReadFile(configPath(dir))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("reading %s: %w", configPath(dir), err)
	}
	return c, nil
}

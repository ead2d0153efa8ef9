package cli

import (
	"crypto/rand"
	"fmt"
	"os"
)

// localHolder names this process for a Lease, unique among all: "host/1234/A2B3C4D5".
func localHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

package boot

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

const (
	maxLog    = 16 << 20 // bytes of a file
	maxEvents = 256      // files of AKS's events
)

// reader reads a file of one kind.
type reader func(io.Reader, source.Options) []wire.BootReport

// file is one that may tell of a boot.
type file struct {
	source, path string
	read         reader
	// fresh: it says of which boot it is by when it was written alone.
	fresh bool
}

func files() []file {
	return []file{
		{"cloud-init", "/var/log/cloud-init.log", source.CloudInitLog, false},
		{"cloud-init-status", "/var/lib/cloud/data/status.json", source.CloudInitStatus, true},
		{"cloud-init-result", "/var/lib/cloud/data/result.json", source.CloudInitResult, true},
		{"waagent", "/var/log/waagent.log", source.AgentLog, false},
		{"cse", "/var/log/azure/custom-script/handler.log", source.CSELog, false},
		{"aks-provision", "/var/log/azure/aks/provision.json", source.AKSProvision, true},
		{"hyperv-kvp", "/var/lib/hyperv/.kvp_pool_1", source.KVP, false},
	}
}

// containerdLogs are of those that do not log to the journal.
func containerdLogs() []string {
	return []string{"/var/lib/rancher/k3s/agent/containerd/containerd.log", "/var/lib/rancher/rke2/agent/containerd/containerd.log"}
}

const aksEvents = "/var/log/azure/Microsoft.Azure.Extensions.CustomScript/events"

func (c *collection) files() {
	for _, f := range files() {
		c.file(f)
	}
	for _, path := range containerdLogs() {
		if _, err := os.Stat(c.o.under(path)); err == nil {
			c.file(file{"containerd", path, source.ContainerdLog, false})
		}
	}
	c.events()
}

func (c *collection) file(f file) {
	path := c.o.under(f.path)
	in, info, err := bootstrap.OpenRegular(path)
	if err != nil {
		c.say(f.source, f.path, wire.SourceMissing, missing(err))
		return
	}
	defer func() { _ = in.Close() }() // it was only read
	if f.fresh && info.ModTime().Before(c.window.Since) {
		c.say(f.source, f.path, wire.SourceOther, "it was written before this boot")
		return
	}
	o := c.window
	o.Path = f.path
	c.parts = append(c.parts, f.read(in, o)...)
}

// events reads AKS's, a file each. The agent takes them away every five minutes.
func (c *collection) events() {
	names, err := filepath.Glob(filepath.Join(c.o.under(aksEvents), "*.json"))
	if err != nil || len(names) == 0 {
		c.say("aks", aksEvents, wire.SourceMissing, "no event is there; the agent takes them away every few minutes")
		return
	}
	left := max(0, len(names)-maxEvents)
	var texts []string
	for _, name := range names[:len(names)-left] {
		text, err := readSmall(name)
		if err == nil {
			texts = append(texts, text)
		}
	}
	o := c.window
	o.Path = aksEvents
	c.parts = append(c.parts, source.AKSEvents(strings.NewReader(strings.Join(texts, "\n")), o)...)
	if left > 0 {
		c.say("aks", aksEvents, wire.SourcePartial, fmt.Sprintf("%d more events were not read", left))
	}
}

// readSmall reads a file of some KiB.
func readSmall(path string) (string, error) {
	f, _, err := bootstrap.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(text), err
}

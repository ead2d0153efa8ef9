package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// What AKS's provisioning leaves. The result's folder may be made long before,
// where a program waits for it, or at the end; the log is begun with. What
// cloud-init is given for it writes below the folder of scripts. Source:
// Azure/AgentBaker parts/linux/cloud-init/artifacts/cse_start.sh, nodecustomdata.yml.
const (
	provisionFile    = "/var/log/azure/aks/provision.json"
	provisionLog     = "/var/log/azure/cluster-provision.log"
	provisionScripts = "/opt/azure/containers/"
)

// lookAtAKS adds how far AKS's provisioning is, where this boot has one. up is the node's
// uptime.
func (n *node) lookAtAKS(s *seen, up time.Duration) {
	booted := time.Now().Add(-up - rebootSlack)
	file, err := os.Stat(n.o.under(provisionFile))
	if err == nil && up > 0 && file.ModTime().Before(booted) {
		s.otherSign, s.assumed = "AKS provisioned this node in an earlier boot", true
		return
	}
	s.provisionRuns = isDir(filepath.Dir(n.o.under(provisionFile)))
	if !s.provisionRuns && s.cloudInit != nil && s.cloudInit.Done && (n.o.Sentinel == NoSentinel || !n.sentinelPromised()) {
		// An image made of an AKS node has scripts and log too: what counts is what was
		// written in this boot, and what this machine was given.
		log, err := os.Stat(n.o.under(provisionLog))
		s.provisionRuns = err == nil && up > 0 && !log.ModTime().Before(booted)
		if n.aksPromised == nil {
			promised := n.promised(provisionScripts)
			n.aksPromised = &promised
		}
		s.provisionComes = *n.aksPromised
	}
	if s.provisionRuns {
		s.otherSign = "AKS's provisioning"
		s.provision = n.lookProvision()
	}
}

func (n *node) lookProvision() *verdict.Provision {
	text, err := readWhole(n.o.under(provisionFile))
	if err != nil {
		return nil
	}
	p, err := parseProvision(text)
	if err != nil {
		n.log.Debug("provision.json is not whole yet", "error", err)
		return nil
	}
	return &p
}

// parseProvision reads AKS's provision.json, whose values are texts; numbers are
// taken too. Source: Azure/AgentBaker parts/linux/cloud-init/artifacts/cse_start.sh.
func parseProvision(text []byte) (verdict.Provision, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return verdict.Provision{}, fmt.Errorf("not the JSON of a provisioning: %w", err)
	}
	var points map[string]json.RawMessage
	if json.Unmarshal(file["BootDatapoints"], &points) != nil {
		points = nil
	}
	p := verdict.Provision{
		ExitCode: scalarOf(file["ExitCode"]), Output: scalarOf(file["Output"]), Error: scalarOf(file["Error"]),
		ExecDuration: scalarOf(file["ExecDuration"]), KernelStartTime: scalarOf(file["KernelStartTime"]),
		CloudInitLocalStartTime: scalarOf(file["CloudInitLocalStartTime"]), CloudInitStartTime: scalarOf(file["CloudInitStartTime"]),
		CloudFinalStartTime: scalarOf(file["CloudFinalStartTime"]), NetworkdStartTime: scalarOf(file["NetworkdStartTime"]),
		CSEStartTime: scalarOf(file["CSEStartTime"]), GuestAgentStartTime: scalarOf(file["GuestAgentStartTime"]),
		KubeletStartTime: scalarOf(points["KubeletStartTime"]), SystemdSummary: scalarOf(file["SystemdSummary"]),
	}
	if p.ExitCode == "" {
		return p, errors.New("a provisioning without an ExitCode")
	}
	return p, nil
}

// scalarOf is a text, or a number as it is written.
func scalarOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return lastPart(strings.TrimSpace(s))
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return clip(n.String())
	}
	return ""
}

// lastPart keeps the end of a long text: what failed is written last.
func lastPart(s string) string {
	return s[max(0, len(s)-maxTail):]
}

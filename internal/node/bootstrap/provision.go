package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/verdict"
)

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

package explain

import (
	"regexp"
	"strings"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/redact"
)

// azures is the form of what readARM reads.
const azures = "an error or instance view of Azure"

var (
	armText   = regexp.MustCompile(`(?i)vmextension|provisioningstate|vmsscse|OSProvisioningTimedOut|\\*"ExitCode\\*"|\\*"statuses\\*"|"code\\*"\s*:|DeploymentFailed|\(Code: `)
	slashes   = regexp.MustCompile(`\\+(?:r\\+n|n|r|t|"|u003[ce]|u0026|u0027|')`)
	fields    = regexp.MustCompile(`([,{[]\s*)("(?:code|message|status|name|details|error|Output|Error|ExecDuration)":)`)
	extension = regexp.MustCompile(`(?i)(?:extension[s]?[ ']*(?:with name )?[ :'"]+([\w.-]+)['"]|"name"\s*:\s*"([\w./-]+)")`)
	exitCode  = regexp.MustCompile(`(?i)(?:exit status\s*[=:]?\s*|exit ?code"?\s*[=:]?\s*"?\s*)(-?\d{1,5})`)
	computer  = regexp.MustCompile(`"computerName"\s*:\s*"([\w.-]+)"`)
	armFailed = regexp.MustCompile(`(?i)ProvisioningState/failed|"provisioningState"\s*:\s*"Failed"|VMExtensionProvisioningError|VMExtensionHandler\w+|VMExtensionProvisioningTimeout|OSProvisioning\w+|terminal provisioning state 'Failed'|"status"\s*:\s*"Failed"|DeploymentFailed|"(?:error|code)"\s*:\s*"(?:\w+(?:Failed|Failure|Error|NotAvailable|NotFound|Exceeded|Conflict|Denied|Invalid\w*)|Invalid\w+|Conflict)"`)
	armWell   = regexp.MustCompile(`(?i)ProvisioningState/succeeded|"provisioningState"\s*:\s*"Succeeded"`)
)

// unescaped breaks the JSON in JSON that ARM's errors are, whole or cut, into the lines that
// programs wrote: escapes of any depth are undone.
func unescaped(lines []Line) []Line {
	out := tail{lines: maxLines, bytes: maxKept}
	for _, l := range lines {
		text := slashes.ReplaceAllStringFunc(l.Text, func(s string) string {
			switch s[len(s)-1] {
			case 'n', 'r':
				return "\n"
			case 't':
				return " "
			case '"', '\'':
				return s[len(s)-1:]
			case 'c':
				return "<"
			case 'e':
				return ">"
			case '6':
				return "&"
			}
			return "'"
		})
		text = fields.ReplaceAllString(text, "$1\n$2")
		for part := range strings.SplitSeq(text, "\n") {
			out.add(Line{l.Number, part[:min(len(part), redact.MaxRead)]})
		}
	}
	return out.kept
}

// readARM reads an error of Azure's, or an instance view. AKS's exit codes count only
// where the extension is AKS's: other scripts end with codes of their own.
func (p *part) readARM() {
	p.lines = unescaped(p.lines)
	ours := func(s string) bool {
		s = strings.ToLower(s)
		return strings.Contains(s, "vmsscse") || strings.Contains(s, "cse-agent")
	}
	aks := false
	for i, l := range p.lines {
		if m := computer.FindStringSubmatch(l.Text); m != nil {
			p.machine = m[1]
		}
		switch {
		case strings.Contains(l.Text, "OSProvisioningTimedOut"):
			p.sign, p.signs = "OSProvisioningTimedOut", append(p.signs, i)
		case armFailed.MatchString(l.Text):
			p.failed, p.signs = true, append(p.signs, i)
		case armWell.MatchString(l.Text):
			p.good(i)
		}
		at := extension.FindAllStringSubmatchIndex(l.Text, -1)
		for _, m := range exitCode.FindAllStringSubmatchIndex(l.Text, -1) {
			named := aks
			for _, e := range at {
				if e[0] < m[0] {
					named = ours(l.Text[e[0]:e[1]])
				}
			}
			code := l.Text[m[2]:m[3]]
			if named && code != "0" && (p.provision == nil || p.provision.ExitCode == "0") {
				p.provision = &verdict.Provision{ExitCode: code}
				p.failed, p.signs = true, append(p.signs, i)
			}
		}
		for _, e := range at {
			aks = ours(l.Text[e[0]:e[1]])
		}
		p.windows = p.windows || strings.Contains(l.Text, "WINDOWS_CSE_ERROR")
	}
	if p.provision != nil {
		p.source = "cluster-provision.log"
	}
}

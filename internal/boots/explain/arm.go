package explain

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/redact"
)

// azures is the form of what readARM reads.
const azures = "an error or instance view of Azure"

var (
	armText   = regexp.MustCompile(`(?i)vmextension|provisioningstate|vmsscse|Enable failed: |failure when processing extension|exit code of: '|WINDOWS_CSE_ERROR|OSProvisioningTimedOut|code\\*": *\\*"\d+\\*", *\\*"Output|\\*"ExitCode\\*"|\\*"statuses\\*"|"code\\*"\s*:|DeploymentFailed|\(Code: |\bCode=\\*"`)
	slashes   = regexp.MustCompile(`\\+(?:r\\+n|n|r|t|"|u003[cCeE]|u0026|u0027|')`)
	fields    = regexp.MustCompile(`([,{[]\s*)("(?:code|message|status|name|details|error|Output|Error|ExecDuration)":)`)
	extension = regexp.MustCompile(`(?i)vmsscse|cse-(?:agent|master)|extensions?[ ']*(?:with name )?[ :'"]+[\w.-]+['"]|"name"\s*:\s*"[\w./-]+"`)
	exitCode  = regexp.MustCompile(`(?i)(exit status|exit ?code(?: of)?|^\W*\w{0,7}code)"?\s*[=:]?\s*["'|]?\s*(-?\d{1,5})`)
	computer  = regexp.MustCompile(`"computerName"\s*:\s*"([\w.-]+)"`)
	armFailed = regexp.MustCompile(`(?i)ProvisioningState/failed|"provisioningState"\s*:\s*"Failed"|VMExtensionProvisioningError|VMExtensionHandler\w+|VMExtensionProvisioningTimeout|OSProvisioning\w+|terminal provisioning state 'Failed'|Enable failed: |failure when processing extension|a non-zero exit code of: |"status"\s*:\s*"Failed"|DeploymentFailed|"?\b(?:error|code)"?\s*[:=]\s*\\*"(?:\w+(?:Failed|Failure|Error|NotAvailable|NotFound|Exceeded|Conflict|Denied|Invalid\w*)|Invalid\w+|Conflict)"`)
	// Windows' CustomScript, and AKS's own script there.
	windowsExtension = words("windows_cse_error", "non-zero exit code of: ", "customscriptextension", "csewindows")

	armWell = regexp.MustCompile(`(?i)ProvisioningState/succeeded|"provisioningState"\s*:\s*"Succeeded"`)
)

// meant is what an escape stands for, by its last byte.
var meant = map[byte]string{'n': "\n", 'r': "\n", 't': " ", '"': `"`, '\'': "'", 'c': "<", 'C': "<", 'e': ">", 'E': ">", '6': "&", '7': "'"}

// unescaped breaks the JSON in JSON that ARM's errors are, whole or cut, into the lines that
// programs wrote: escapes of any depth are undone.
func unescaped(lines []Line) []Line {
	out := tail{lines: maxLines, bytes: maxKept}
	for _, l := range lines {
		text := slashes.ReplaceAllStringFunc(l.Text, func(s string) string { return meant[s[len(s)-1]] })
		text = fields.ReplaceAllString(text, "$1\n$2")
		for part := range strings.SplitSeq(text, "\n") {
			out.add(Line{l.Number, part[:min(len(part), redact.MaxRead)]})
		}
	}
	return out.kept
}

// readARM reads an error of Azure's, or an instance view. AKS's exit codes count only
// where the extension is AKS's, or what its script reports follows the code: other scripts
// end with codes of their own.
func (p *part) readARM() {
	p.lines = unescaped(p.lines)
	ours := func(s string) bool {
		s = strings.ToLower(s)
		return strings.Contains(s, "vmsscse") || strings.Contains(s, "cse-agent") || strings.Contains(s, "cse-master")
	}
	aks, output := false, words("windows_cse_error", `"output": "`)
	if named := slices.IndexFunc(p.lines, func(l Line) bool { return extension.MatchString(l.Text) }); named >= 0 {
		aks = ours(extension.FindString(p.lines[named].Text))
	}
	for i, l := range p.lines {
		if m := computer.FindStringSubmatch(l.Text); m != nil {
			p.machine = m[1]
		}
		switch {
		case strings.Contains(l.Text, "OSProvisioningTimedOut"):
			p.sign, p.signs = "OSProvisioningTimedOut", append(p.signs, i)
		case armFailed.MatchString(l.Text):
			p.failed, p.signs = true, append(p.signs, i)
			if aks {
				p.open = map[string][]int{"aks": p.signs}
			}
		case aks && armWell.MatchString(l.Text): // that a VM is there says nothing of its node
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
			code, after := l.Text[m[4]:m[5]], l.Text[m[5]:]
			if i+1 < len(p.lines) {
				after += p.lines[i+1].Text
			}
			if reports := output(strings.ToLower(after)); reports || !strings.Contains(strings.ToLower(l.Text[m[2]:m[3]]), "exit") {
				named = reports
			}
			if named && code != "0" && (p.provision == nil || p.provision.ExitCode == "0") {
				p.provision = &verdict.Provision{ExitCode: code}
				p.failed, p.signs = true, append(p.signs, i)
			}
		}
		for _, e := range at {
			aks = ours(l.Text[e[0]:e[1]])
		}
		p.windows = p.windows || windowsExtension(strings.ToLower(l.Text))
	}
	if p.provision != nil {
		p.source = "cluster-provision.log"
	}
}

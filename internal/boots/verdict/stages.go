package verdict

import (
	"strconv"
	"strings"
)

const (
	statusFile    = "/run/cloud-init/status.json"
	provisionFile = "/var/log/azure/aks/provision.json"
	systemd       = "systemd"
	services      = "services" // Windows's
	nodeCondition = "condition Ready of the Node"
)

// moduleOf finds cloud-init's module in an error of status.json:
// "('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted
// commands'))". Older versions write dashes.
func moduleOf(s string) string {
	_, rest, ok := strings.Cut(s, "('")
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(rest, "',")
	if !ok || len(name) > 64 || strings.Trim(name, lowers+"-_") != "" {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

// moduleReason is the reason of a module's error, and the module as an operator knows it:
// runcmd is run by scripts_user.
func moduleReason(module, s string) (reason, shown string) {
	switch {
	case strings.HasPrefix(module, "scripts_") && hasAny(s, "(runcmd", "runcmd)"):
		return "RuncmdFailed", "runcmd"
	case strings.HasPrefix(module, "scripts_"):
		return "UserScriptFailed", module
	case module == "runcmd":
		return "RuncmdFailed", module
	case module == "bootcmd":
		return "BootcmdFailed", module
	case strings.HasPrefix(module, "write_files"):
		return "WriteFilesFailed", module
	case module == "package_update_upgrade_install":
		return "PackageInstallFailed", module
	case module == "disk_setup":
		return "DiskSetupFailed", module
	case module == "mounts":
		return "MountFailed", module
	case module == "":
		return "CloudInitCrashed", ""
	}
	return "CloudInitModuleFailed", module
}

// stageFindings are the findings of status.json's errors.
func stageFindings(ci *CloudInit) []finding {
	if ci == nil {
		return nil
	}
	var found []finding
	for _, s := range ci.Stages {
		for i, e := range s.Errors {
			reason, module := moduleReason(moduleOf(e), e)
			r, _ := Lookup(reason)
			found = append(found, finding{reason: reason, rank: r.rank, log: -1, line: i, order: cloudInit, text: e, stage: s.Name, module: module})
			if low := strings.ToLower(e); strings.Contains(low, "no datasource found") || strings.Contains(low, "datasourcenotfound") {
				found = append(found, finding{reason: "DatasourceNotFound", rank: rankEffect, log: -1, line: i, order: cloudInit, text: e, stage: s.Name})
			}
		}
	}
	return found
}

// running is the stage that has begun and not ended, "" for none.
func (ci *CloudInit) running() string {
	if ci == nil || ci.Done {
		return ""
	}
	for i := len(ci.Stages) - 1; i >= 0; i-- {
		if s := ci.Stages[i]; s.Begin > 0 && s.End == 0 {
			return s.Name
		}
	}
	return ""
}

// early reports whether cloud-init did not come beyond the stage that finds its data: what
// it met on the way there and got over does not matter afterwards.
func (ci *CloudInit) early() bool {
	if ci == nil {
		return true
	}
	for _, s := range ci.Stages {
		// Without a source of data the later stages begin only to report that.
		if strings.HasPrefix(s.Name, "modules") && (s.Begin > 0 || s.End > 0) && !strings.Contains(strings.Join(s.Errors, " "), "no datasource found") {
			return false
		}
	}
	return true
}

// runningModule is the module that began last and did not end, by cloud-init's
// own log: "start: modules-final/config-scripts_user: …".
func runningModule(logs []log) string {
	module := ""
	for i := range logs {
		for n, s := range logs[i].low {
			if logs[i].of[n] != cloudInit {
				continue
			}
			at := strings.Index(s, "/config-")
			if at < 0 {
				continue
			}
			name, _, ok := strings.Cut(s[at+len("/config-"):], ":")
			if !ok || len(name) > 64 {
				continue
			}
			switch {
			case strings.Contains(s[:at], " start: "):
				module = strings.ReplaceAll(name, "-", "_")
			case strings.Contains(s[:at], " finish: "):
				module = ""
			}
		}
	}
	return module
}

// scriptExit is the exit code of the script that failed, by cloud-init's own message:
// "Failed running …/scripts/runcmd [2]", or "Exit code: 2" below the command; by
// cloudbase-init's, "User_data script ended with return code: 2".
func scriptExit(logs []log) *int {
	var code *int
	for i := range logs {
		command := false
		for n, s := range logs[i].low {
			switch {
			case logs[i].of[n]&(cloudInit|output) == 0:
			case strings.Contains(s, "user_data script ended with return code: "): // cloudbase-init's
				_, text, _ := strings.Cut(s, "return code: ")
				switch text, _, _ = strings.Cut(text, " "); text {
				case "0", "1001", "1002", "1003": // the latter ask for a reboot
				default:
					code = number(text, code)
				}
			case strings.Contains(s, "failed running /var/lib/cloud/"):
				if text, _, ok := strings.Cut(s[strings.LastIndex(s, "[")+1:], "]"); ok {
					code = number(text, code)
				}
			case strings.Contains(s, "command: [") && strings.Contains(s, "/scripts/"), strings.Contains(s, "command: /var/lib/cloud/") && strings.Contains(s, "/scripts/"):
				command = true
			case command && strings.Contains(s, "exit code: "):
				_, text, _ := strings.Cut(s, "exit code: ")
				code, command = number(strings.TrimSpace(text), code), false
			}
		}
	}
	return code
}

func number(text string, otherwise *int) *int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 0xffffffff {
		return otherwise
	}
	return &n
}

// code is the exit code of AKS's script, nil where it gave none.
func (p *Provision) code() *int {
	if p == nil {
		return nil
	}
	return number(strings.TrimSpace(p.ExitCode), nil)
}

// codeRank keeps a code below what was written beside it.
func codeRank(c aksCode, r rank) rank {
	most := rankEffect
	if strings.Contains(c.Name, "TIMEOUT") {
		most = rankPhase
	}
	return min(r, most)
}

// provisionFindings are the findings of AKS's exit code.
func provisionFindings(f Facts) []finding {
	code := f.Provision.code()
	if code == nil || *code == 0 {
		return nil
	}
	found := finding{reason: "AKSProvisioningFailed", rank: rankStage, log: -1, order: provision, exit: code, text: "exit code " + strconv.Itoa(*code)}
	for _, c := range aksCodes(f.Windows) {
		if c.Code != *code {
			continue
		}
		r, _ := Lookup(c.Reason)
		found.reason, found.rank = c.Reason, codeRank(c, r.rank)
		found.text += " (" + c.Name + ")"
	}
	return []finding{found}
}

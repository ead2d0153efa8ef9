package verdict

import (
	_ "embed" // the tables of codes
	"strconv"
	"strings"
)

// aksCode is an exit code of AKS's provisioning script.
type aksCode struct {
	Code   int
	Name   string // as the script calls it
	Reason string // of the catalogue
}

// A code is the script's own opinion; what it wrote beside it is nearer to the
// cause (codeRank). Codes that are called time-outs are given for whatever
// failed again and again. Sources of fact, in Azure/AgentBaker:
//   - Linux: parts/linux/cloud-init/artifacts/cse_helpers.sh of 2026-08-21 (128 codes)
//   - Windows: parts/windows/windowscsehelper.ps1 of 2026-09 (84 codes, and 0)
var (
	//go:embed aks-linux.tsv
	aksLinux string
	//go:embed aks-windows.tsv
	aksWindows string
)

// aksCodes are all exit codes of the script, in order, on Linux with those of earlier
// versions that images still have.
func aksCodes(windows bool) (codes []aksCode) {
	table := aksLinux
	if windows {
		table = aksWindows
	}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(row), "\t")
		code, _ := strconv.Atoi(cells[0])
		codes = append(codes, aksCode{code, cells[1], cells[2]})
	}
	return codes
}

package verdict

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

const docs = "../../../docs/reference/reasons.md"

// docs/reference/reasons.md is the catalogue.
func TestDocs(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the catalogue says; run go test ./internal/boots/verdict -update", docs)
	}
}

// sections are the headings of the page, each from a reason of the catalogue on.
var sections = [...]struct{ first, title, lead string }{
	{"DiskFull", "Machine", ""},
	{"DHCPFailed", "Network", ""},
	{"DatasourceNotFound", "cloud-init", "Modules are cloud-init's."},
	{"BinaryMissing", "Programs and settings of the image", "[ERROR …] is a check of kubeadm."},
	{"ContainerdMissing", "Container runtime", ""},
	{"ImagePullUnauthorized", "Image pulls", "Lines are of a failed pull."},
	{"BootstrapTokenUnknown", "kubeadm", `Lines and phases are kubeadm's. Its output goes before its phase; its exit code
says nothing (1 for every error in 1.36).`},
	{"APIServerNameUnknown", "API server", "Lines are of a request to the API server."},
	{"KubeletMissing", "kubelet and Node", "Lines are the kubelet's. Those that count after a join are usual before it, and no reason then."},
	{"K3sTokenRejected", "k3s and RKE2", ""},
	{"KubernetesInstallFailed", "AKS", `Numbers are exit codes of AKS's provisioning scripts, W those of Windows; names (ERR_…,
WINDOWS_CSE_ERROR_…) are in [aks-linux.tsv](../../internal/boots/verdict/aks-linux.tsv) and
[aks-windows.tsv](../../internal/boots/verdict/aks-windows.tsv). What a script printed
goes before its code: codes that are called time-outs are given for whatever failed
again and again.`},
	{"OSProvisioningTimedOut", "Azure", ""},
	{"UnitMissing", "Units", `A unit counts that is waited for, or that what makes the node requires. Others that
failed are quoted, and are no reason.`},
	{"CloudInitHung", "What did not happen", ""},
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Why a node did not come up

This page is a reference for operators: every reason of a failed boot, who can mend
it, what shows it, and the remedy. ` + "`ortet nodes NAME`, `ortet explain`" + ` and ` + "`ortet-node wait`" + `
print a reason with what happened, owner, confidence, remedy and the lines that show it.

*Who*: **user** wrote the configuration, **image** built the image, **network**
runs the network between node and API server or registry, **platform** is Azure or
the hardware. Where the remedy is empty, read the quoted lines.

| mark | confidence |
|---|---|
| none | observed: a program says why it stopped |
| ? | concluded: by what does not work, or by where it failed |
| – | unknown: something did not happen or a part failed, and nothing says why. Gates of an image excuse no clone by it |
| ↻ | the same boot may succeed if it is tried again |

- A reason's name keeps its meaning: alerts and selectors can rely on it.
- Of several reasons the nearest to the cause counts
  ([picture](verdict.md#where-a-verdict-is-found)), of equals the earliest in the boot. Two causes that each suffice are both named.
- Of several tries of kubeadm the last counts, but for what an earlier one left
  behind. An error after which the node joined is no reason.
- These give no reason: a pod's own images, probes, volumes and objects, what the API server
  forbids to others, a warning alone, a full disk that the node does not need. A sign
  without the evidence below is Unknown, with the raw lines.

*AKS* and numbers are [exit codes](#aks). Written by go test ./internal/boots/verdict -update.
`)
	next := 0
	for _, r := range Reasons() {
		if next < len(sections) && r.Name == sections[next].first {
			fmt.Fprintf(&b, "\n## %s\n\n", sections[next].title)
			if lead := sections[next].lead; lead != "" {
				b.WriteString(lead + "\n\n")
			}
			b.WriteString("| reason | who | shown by | remedy |\n|---|---|---|---|\n")
			next++
		}
		who := string(r.Owner)
		if who == "" {
			who = "–"
		} else if r.Confidence() == Concluded {
			who += "?"
		}
		if r.Retryable {
			who += "↻"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, who, cell(evidenceOf(r)), cell(quotedAlone.ReplaceAllString(r.Remedy, "")))
	}
	return b.String()
}

// codesOf are the codes of AKS that give a reason, with ranges: "24, 83-86, W14".
func codesOf(reason string) string {
	var ranges []string
	for _, system := range []struct {
		windows bool
		prefix  string
	}{{false, ""}, {true, "W"}} {
		first, last := 0, 0
		flush := func() {
			switch first {
			case 0:
			case last:
				ranges = append(ranges, fmt.Sprintf("%s%d", system.prefix, first))
			default:
				ranges = append(ranges, fmt.Sprintf("%s%d-%d", system.prefix, first, last))
			}
		}
		for _, c := range aksCodes(system.windows) {
			if c.Reason != reason {
				continue
			}
			if c.Code != last+1 || first == 0 {
				flush()
				first = c.Code
			}
			last = c.Code
		}
		flush()
	}
	return strings.Join(ranges, ", ")
}

// quotedAlone is a remedy that only refers to the lines that are shown with the reason.
var quotedAlone = regexp.MustCompile(`^See (the |containerd's |[a-z]+'s )+quoted (lines|output)` +
	`( for [^,;:]*| of [^,;:]*| that [^,;:]*)?\.$|^Read the quoted lines\.$`)

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// The catalogue is within what crosses the wire, and all that maps into it names
// reasons that it has.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		if seen[r.Name] {
			t.Errorf("%s is there twice", r.Name)
		}
		seen[r.Name] = true
		if r.rank <= rankStage && r.Owner != "" && !slices.Contains([]string{"WriteFilesFailed", "UserDataSchemaInvalid"}, r.Name) {
			t.Errorf("%s only says that something did not happen, and has the owner %q", r.Name, r.Owner)
		}
		if (r.Owner == "") != (r.Confidence() == Unsure) || ConfidenceOf(r.Name) != r.Confidence() {
			t.Errorf("%s: owner %q, confidence %s", r.Name, r.Owner, r.Confidence())
		}
		if r.Summary == "" || r.Remedy == "" || evidenceOf(r) == "" || strings.Contains(r.Remedy, "\n") || len(r.Remedy) > 200 || len(r.Summary) > 120 {
			t.Errorf("%s is not written out, or too long: %+v", r.Name, r)
		}
		v := wire.Verdict{Outcome: wire.Failed, Reason: r.Name, Owner: r.Owner, Remedy: r.Remedy, Message: r.Summary, At: verdictOf(Judgement{}).At}
		if err := v.Validate(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	known := func(where, reason string) {
		if !seen[reason] {
			t.Errorf("%s names %s, which is no reason", where, reason)
		}
	}
	for i := range rules {
		known("a rule", rules[i].reason)
		words := append(append([]string{rules[i].all}, rules[i].any...), rules[i].not...)
		for _, w := range words {
			if w != strings.ToLower(w) {
				t.Errorf("%s: %q can never be found in lower case", rules[i].reason, w)
			}
		}
		if rules[i].all == "" && len(rules[i].any) == 0 {
			t.Errorf("%s: a rule that every line matches", rules[i].reason)
		}
	}
	for i, c := range aksCodes(true) {
		if known("AKS", c.Reason); c.Code != i+1 {
			t.Errorf("code %d on Windows is not in order", c.Code)
		}
	}
	codes, last := 0, 0
	for _, c := range aksCodes(false) {
		known("AKS", c.Reason)
		if c.Code <= last {
			t.Errorf("code %d is not in order", c.Code)
		}
		last = c.Code
		if strings.HasPrefix(c.Name, "ERR_") {
			codes++
		}
	}
	if codes != 128+4 {
		t.Errorf("%d codes of AKS; the script of 2026-08-21 has 128, and 4 are of earlier ones", codes)
	}
	for _, p := range kubeadmPhases {
		known("kubeadm", p.Reason)
	}
}

// What the reasons of faults are called is in the catalogue too.
func TestFaultsHaveReasons(t *testing.T) {
	for f := noFault + 1; f < numberOfFaults; f++ {
		given := faults[f]
		if given.api == "" && f != rateLimited || given.pull == "" && f != unavailable {
			t.Errorf("fault %d has no reason: %q", f, given)
		}
		for _, reason := range []string{given.api, given.pull, f.ofAPIServer("127.0.0.1:6444", k3s)} {
			if _, ok := Lookup(reason); reason != "" && !ok {
				t.Errorf("%s is no reason", reason)
			}
		}
	}
}

// kubeadmPhases are those of kubeadm join and init, with the reason that a failure gives
// where the output says no more. Source of fact: kubeadm 1.36,
// kubernetes/cmd/kubeadm/app/cmd/phases.
var kubeadmPhases = [...]struct{ Phase, Reason string }{
	{"preflight", "KubeadmPreflight"},
	{"control-plane-prepare", "KubeadmFailed"},
	{"control-plane-prepare/download-certs", "KubeadmFailed"},
	{"control-plane-prepare/certs", "KubeadmFailed"},
	{"control-plane-prepare/kubeconfig", "KubeadmFailed"},
	{"control-plane-prepare/control-plane", "KubeadmFailed"},
	{"kubelet-start", "KubeadmFailed"},
	{"kubelet-wait-bootstrap", "KubeletStartTimeout"},
	{"check-etcd", "EtcdJoinFailed"},
	{"etcd-join", "EtcdJoinFailed"},
	{"control-plane-join", "KubeadmFailed"},
	{"control-plane-join/etcd", "EtcdJoinFailed"},
	{"control-plane-join/mark-control-plane", "KubeadmFailed"},
	{"wait-control-plane", "ControlPlaneNotHealthy"},
	{"certs", "KubeadmFailed"},
	{"kubeconfig", "KubeadmFailed"},
	{"etcd", "KubeadmFailed"},
	{"control-plane", "KubeadmFailed"},
	{"upload-config", "KubeadmFailed"},
	{"upload-certs", "KubeadmFailed"},
	{"mark-control-plane", "KubeadmFailed"},
	{"bootstrap-token", "KubeadmFailed"},
	{"kubelet-finalize", "KubeadmFailed"},
	{"addon", "KubeadmFailed"},
}

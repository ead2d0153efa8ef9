package verdict

import (
	"fmt"
	"os"
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

func document() string {
	var b strings.Builder
	b.WriteString(`# Why a node did not come up

This page is a reference for operators: every reason of a failed boot, who can mend
it, and how. Each verdict that is not Succeeded has a reason from the first table.

- A reason's name keeps its meaning: alerts and selectors can rely on it.
- A reason needs the evidence beside it, in the words of the program that failed.
  Where there is only a sign that something is wrong the reason is Unknown, with
  the raw lines.
- Of several reasons the one nearest to the cause counts, of equals the earliest in
  the boot. The nearest is a refusal by the cluster, then a broken machine, a cause
  that a program names, a component that does not work, a program's phase, and a
  part of the boot. Two causes that each suffice are both named in the message.
- Of several tries of kubeadm the last counts, but for what an earlier one left
  behind. An error after which the node joined is no reason.
- These give no reason: a pod's own images, probes, volumes and objects, what the
  API server forbids to others, a warning alone, a full disk that the node does not
  need.

*Who*: **user** wrote the configuration, **image** built the image, **network**
runs the network between node and API server or registry, **platform** is Azure or
the hardware. The cause was observed (a program says why it stopped), unless the
column adds:

- *concluded*: by what does not work, or by where it failed.
- *–*: unknown. Something did not happen or a part failed, and nothing says why.
  Gates of an image excuse no clone by such a reason.
- *retry*: the same boot may succeed if it is tried again.

The tables are made from internal/boots/verdict (go test ./internal/boots/verdict
-update).

| reason | who | what happened | evidence | remedy |
|---|---|---|---|---|
`)
	for _, r := range Reasons() {
		who := string(r.Owner)
		if who == "" {
			who = "–"
		} else if r.Confidence() == Concluded {
			who += ", concluded"
		}
		if r.Retryable {
			who += ", retry"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, who, cell(r.Summary), cell(evidenceOf(r.Name)), cell(r.Remedy))
	}
	b.WriteString(`
## kubeadm

kubeadm's output goes before its exit code and phase: recent versions exit with 1 for
every error.

| reason | exit code | failed phase |
|---|---|---|
`)
	for _, r := range Reasons() {
		var codes, phases []string
		for _, c := range kubeadmCodes {
			if c.Reason == r.Name {
				codes = append(codes, fmt.Sprintf("%d: %s", c.Code, cell(c.Meaning)))
			}
		}
		for _, p := range kubeadmPhases {
			if p.Reason == r.Name {
				phases = append(phases, "`"+p.Phase+"`")
			}
		}
		if len(codes)+len(phases) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, strings.Join(codes, ", "), strings.Join(phases, ", "))
		}
	}
	b.WriteString(`
## AKS

Exit codes of AKS's provisioning scripts. What a script printed goes before its code:
codes that are called time-outs are given for whatever failed again and again. W is
a code of the script for Windows.

| reason | codes |
|---|---|
`)
	for _, r := range Reasons() {
		if codes := codesOf(r.Name); codes != "" {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Name, codes)
		}
	}
	return b.String()
}

// codesOf are the codes of AKS that give a reason.
func codesOf(reason string) string {
	var codes []string
	for _, c := range aksCodes(false) {
		if c.Reason == reason {
			codes = append(codes, fmt.Sprintf("%d `%s`", c.Code, c.Name))
		}
	}
	for _, c := range aksCodes(true) {
		if c.Reason == reason {
			codes = append(codes, fmt.Sprintf("W%d `%s`", c.Code, c.Name))
		}
	}
	return strings.Join(codes, ", ")
}

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
		if r.Summary == "" || r.Remedy == "" || evidenceOf(r.Name) == "" || strings.Contains(r.Remedy, "\n") || len(r.Remedy) > 200 || len(r.Summary) > 120 {
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
	for _, c := range kubeadmCodes {
		known("kubeadm", c.Reason)
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

// kubeadmCodes are kubeadm's exit codes. 2 and 3 were given up: kubeadm 1.36 exits with 1
// for every error (kubernetes/cmd/kubeadm/app/util/errors).
var kubeadmCodes = [...]struct {
	Code            int
	Reason, Meaning string
}{
	{1, "KubeadmFailed", "any error; in recent versions the only code"},
	{2, "KubeadmPreflight", "a preflight check failed"},
	{3, "KubeadmConfigInvalid", "the configuration was not valid"},
}

package mistakes

import (
	"context"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/workflow"
)

var (
	other  = flag.String("ortet", "", "run this `PROGRAM` instead of building ortet")
	file   = flag.String("file", today, "golden `FILE` to compare with, or to write")
	update = flag.Bool("update", false, "write the golden file")
)

const (
	today   = "testdata/today.txt"
	earlier = "testdata/at-2ad2160.txt"

	usage = 2 // as package cli has it
	head  = `# What ortet prints on mistakes: see doc.go. Addresses, paths, ids and times are words.
# KUBECONFIG and --azure-config name files that are right, unless the row says otherwise.
`
)

// A row is one mistake.
type row struct {
	name string
	args string
	exit int
	says []string // of any stream: what is wrong, and a way out

	kubeconfig, azure, roots string // files; "" is the right one
	timeout                  string // of --timeout, where ortet has it
	twice                    bool   // while the same command is at work
	slow                     bool   // it waits more than it works
}

const image = " --image example.invalid/ortet:1"

// mistakes lists the rows. What ortet waits for is in the rows that are slow.
func (w *world) mistakes(hung *world) []row {
	capture := "capture " + node + image
	const id = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	return []row{
		{name: "node", args: "capture pool100000" + image, exit: workflow.ExitRefused, says: []string{"node pool100000: there is no such node", "kubectl get nodes"}},
		{name: "pool", args: "status pol1", exit: workflow.ExitRefused, says: []string{"pol1", pool}},
		{name: "id", args: "status " + id + "pol1", exit: workflow.ExitRefused, says: []string{"there is no such scale set", "az vmss list"}},
		{name: "id of something else", args: "status " + id + pool + "/virtualMachines/0", exit: usage, says: []string{"virtualMachineScaleSets/NAME"}},
		{name: "flag", args: capture + " --dryrun", exit: usage, says: []string{"--dryrun", "--help"}},
		{name: "duration", args: capture + " --grace-period 5", exit: usage, says: []string{"--grace-period", "30s"}},
		{name: "budget of nothing", args: "rollout " + pool + " --max-unavailable 0%", exit: usage, says: []string{"--max-unavailable", "never allow"}},
		{name: "window longer than its period", args: "rollout " + pool + " --window @daily --window-duration 2d", exit: usage, says: []string{"--window", "at most 24h"}},
		{name: "output form", args: "status -o xml", exit: usage, says: []string{"table, json"}},

		{name: "kubeconfig that is missing", args: "status --kubeconfig nosuch", exit: workflow.ExitRefused, says: []string{"nosuch", "no such file"}},
		{name: "kubeconfig that is none", args: "status --kubeconfig " + w.write("notes.txt", "server: none\n"), exit: workflow.ExitRefused, says: []string{"notes.txt is not a kubeconfig"}},
		{name: "context", args: "status --context prod", exit: workflow.ExitRefused, says: []string{"context prod", "production, staging"}},

		{name: "azure.json, empty", args: "status", azure: w.write("empty-file/azure.json", ""), exit: workflow.ExitRefused, says: []string{"empty", "-> correct the azure.json"}},
		{name: "azure.json, cut off", args: "status", azure: w.write("cut/azure.json", `{"cloud": "AzurePublicCloud", "tenantId": "`), exit: workflow.ExitRefused, says: []string{"cut/azure.json", "cut off", "-> correct the azure.json"}},
		{name: "azure.json, wrong type", args: "status", azure: w.azureJSON("type", w.arm.URL, map[string]any{"useManagedIdentityExtension": "true"}), exit: workflow.ExitRefused, says: []string{"useManagedIdentityExtension", "true or false"}},
		{name: "azure.json, no way to log in", args: "status", azure: w.azureJSON("no-credentials", w.arm.URL, map[string]any{"aadClientSecret": nil}), exit: workflow.ExitRefused, says: []string{"aadClientSecret", "useManagedIdentityExtension"}},
		{name: "azure.json, wrong secret", args: "status", azure: w.azureJSON("secret", w.arm.URL, map[string]any{"aadClientSecret": "expired"}), exit: workflow.ExitFailed, says: []string{"AADSTS7000215"}},

		{name: "CA of Azure", args: "status", roots: w.write("other.pem", string(w.otherCA())), exit: workflow.ExitFailed, says: []string{"certificate", "SSL_CERT_FILE"}},
		{name: "CA of the API server", args: "status", kubeconfig: w.kubeconfig("other-ca", "admin", w.api.URL, w.otherCA()), exit: workflow.ExitFailed, says: []string{"x509"}},
		{name: "API server refused", args: "status", kubeconfig: w.kubeconfig("refused", "admin", "https://"+refuses(w.t), nil), exit: workflow.ExitFailed, says: []string{"connection refused", "--kubeconfig"}, slow: true},
		{name: "API server dropped", args: "status", kubeconfig: w.kubeconfig("dropped", "admin", "https://"+drops(w.t), nil), exit: workflow.ExitFailed, says: []string{"nothing answered", "--kubeconfig"}, slow: true},
		// No domain name: Go asks no DNS server, which a machine that runs the test may lack.
		{name: "API server, no DNS", args: "status", kubeconfig: w.kubeconfig("nowhere", "admin", "https://api-.cluster.invalid:6443", nil), exit: workflow.ExitFailed, says: []string{"no such host", "--kubeconfig"}, slow: true},
		{name: "ARM unreachable", args: "status", azure: w.azureJSON("unreachable", "https://"+refuses(w.t), nil), exit: workflow.ExitFailed, timeout: "5s", slow: true, says: []string{"Waiting for", "connection refused"}},
		{name: "ARM hung", args: "status", azure: w.azureJSON("hung", hung.arm.URL, nil), exit: workflow.ExitFailed, timeout: "5s", slow: true, says: []string{"Waiting for", strings.TrimPrefix(hung.arm.URL, "https://")}},

		{name: "rights missing in Azure", args: capture, azure: w.azureJSON("reader", w.arm.URL, map[string]any{"aadClientId": readerID}), exit: workflow.ExitRefused, says: []string{"Microsoft.Compute/snapshots/write", "azure-permissions.md"}},
		{name: "rights of a rollout missing in Azure", args: "rollout " + pool + " --dry-run", azure: w.azureJSON("reader", w.arm.URL, map[string]any{"aadClientId": readerID}), exit: workflow.ExitRefused, says: []string{"virtualMachineScaleSets/manualUpgrade/action", "nothing was changed"}},
		{name: "rights of a watch missing in Azure", args: "capture " + second + "000000" + image + " --watch 30m --bad-nodes delete", azure: w.azureJSON("keeper", w.arm.URL, map[string]any{"aadClientId": keeperID}), exit: workflow.ExitRefused, says: []string{"virtualMachineScaleSets/delete/action", "nothing was changed"}},
		{name: "rights missing in the cluster", args: "capture " + fourth + "000000" + image, kubeconfig: w.kubeconfig(viewer, viewer, w.api.URL, nil), exit: workflow.ExitRefused, says: []string{"leases", "kubernetes-permissions.md"}},
		{name: "AKS node", args: "capture " + aks + "000000" + image, exit: workflow.ExitRefused, says: []string{"AKS manages this pool", "AKS's own node images"}},
		{name: "control plane", args: "capture " + masters + "000000" + image, exit: workflow.ExitRefused, says: []string{"control plane", "name a worker"}},
		{name: "no provider id", args: "capture " + laptop + image, exit: workflow.ExitRefused, says: []string{"node " + laptop, "it has no provider id"}},
		{name: "two at once", args: capture, exit: workflow.ExitRefused, says: []string{"pool lock", "wait until it has ended"}, twice: true, slow: true},
		{name: "no gallery", args: "rollback " + third + "000000", exit: workflow.ExitRefused, says: []string{"never captured", "ortet capture NODE"}},
		{name: "abandon, no name", args: "capture --abandon", exit: usage, says: []string{"name a node of the pool"}},
		{name: "abandon, no such pool", args: "capture --abandon pol1", exit: workflow.ExitRefused, says: []string{"pol1", "az vmss list"}},
		{name: "abandon, a flag of a capture", args: "capture --abandon " + node + image, exit: usage, says: []string{"--image", "leave it out"}},
		{name: "abandon, names", args: "capture --abandon " + node + " -o name", exit: usage, says: []string{"-o name", "json"}},
		{name: "no TTY", args: "cluster init", exit: usage, says: []string{"--name"}},
	}
}

// foreign is what only a programmer can read.
var foreign = regexp.MustCompile(`\*[a-z]+\.[A-Z]\w+|\bmap\[|%!|goroutine \d|<nil>|\{"|struct \{|\w+Credential: |deadline exceeded`)

// Each mistake ends with what is wrong and a way out, in a known exit code and the words of
// the golden file.
func TestMistakes(t *testing.T) {
	p := build(t, *other)
	w, busy, hung := newWorld(t), newWorld(t), newWorld(t)
	must(t, hung.azure.AddFault(azsim.Fault{Path: "^/subscriptions", Effect: azsim.EffectHang}))
	rows := w.mistakes(hung)
	right := row{kubeconfig: w.kubeconfig("admin", "admin", w.api.URL, nil), azure: w.azureJSON("azure", w.arm.URL, nil), roots: w.roots}
	alone := row{kubeconfig: busy.kubeconfig("admin", "admin", busy.api.URL, nil), azure: busy.azureJSON("azure", busy.arm.URL, nil), roots: busy.roots}

	// Rows that wait begin at once, and the others two at a time, as tests do.
	ctx, cancel := context.WithTimeout(t.Context(), 3**limit)
	t.Cleanup(cancel)
	results, turn := make([]chan result, len(rows)), make(chan struct{}, 2)
	for i, r := range rows {
		results[i] = make(chan result, 1)
		run, files := w.run, right
		if r.twice {
			run, files = busy.twice, alone
		}
		r = r.with(files)
		go func() {
			if !r.slow {
				turn <- struct{}{}
				defer func() { <-turn }()
			}
			results[i] <- run(ctx, p, r)
		}()
	}

	written := make([]string, len(rows))
	t.Run("rows", func(t *testing.T) {
		var golden map[string]string
		if !*update {
			_, golden = rowsOf(t, *file)
		}
		for i, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				got := <-results[i]
				must(t, got.failure)
				where := w
				if r.twice {
					where = busy
				}
				text := where.written(r.name, got, hung)
				written[i] = text
				t.Logf("%.1f s, first line after %.1f s", got.took.Seconds(), got.first.Seconds())
				if *other == "" {
					r.check(t, p, got)
				}
				if now := expectedWaiting(times.ReplaceAllString(text, ""), golden[r.name]); !*update && now != golden[r.name] {
					t.Errorf("printed otherwise than %s has it; if that is meant, run this test with -args -update.\nnow:\n%s\nwanted:\n%s", *file, now, golden[r.name])
				}
			})
		}
	})
	if *update {
		if slices.Contains(written, "") {
			t.Fatal("not all rows have run: the golden file is not written")
		}
		must(t, os.WriteFile(*file, []byte(head+"\n"+strings.Join(written, "\n")), 0o644))
	}
	for _, f := range []string{today, earlier} {
		var want []string
		for _, r := range rows {
			want = append(want, r.name)
		}
		if names, _ := rowsOf(t, f); !slices.Equal(names, want) {
			t.Errorf("%s has rows %q, want %q", f, names, want)
		}
	}
}

// waiting are lines that are printed after some seconds without an answer.
var waiting = regexp.MustCompile(`(?m)^err\| (Waiting for .*: no answer yet.*|TIME \S+: waiting for .*)\n`)

// expectedWaiting drops the waiting lines that are not wanted: a busy machine prints more of them.
func expectedWaiting(text, want string) string {
	return waiting.ReplaceAllStringFunc(text, func(line string) string {
		if strings.Contains(want, line) {
			return line
		}
		return ""
	})
}

// with fills in the files that are right.
func (r row) with(right row) row {
	for _, f := range []struct{ to, from *string }{{&r.kubeconfig, &right.kubeconfig}, {&r.azure, &right.azure}, {&r.roots, &right.roots}} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	return r
}

// check is what holds of each row, whatever its words are.
func (r row) check(t *testing.T, p program, got result) {
	t.Helper()
	if got.hung && r.timeout != "" && !p.timeout {
		return // as the golden file has it
	}
	if got.hung {
		t.Errorf("hung: nothing ended it in %s", *limit)
	} else if got.exit != r.exit {
		t.Errorf("exit code %d, want %d", got.exit, r.exit)
	}
	if got.out != "" {
		t.Errorf("printed a result:\n%s", got.out)
	}
	for _, s := range append(r.says, "ortet: ") {
		if !strings.Contains(got.err, s) {
			t.Errorf("does not say %q:\n%s", s, got.err)
		}
	}
	if found := foreign.FindString(got.err); found != "" {
		t.Errorf("prints %q, which is not for users:\n%s", found, got.err)
	}
}

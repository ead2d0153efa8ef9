package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/workflow"
)

// Image is Ortet's own, of the archive LIVE_FILES/images.tar.
const Image = "live.ortet.invalid/ortet:live"

const poolName = "agents"

// Claims that a run on a cluster makes statements about, by how their rows begin.
const (
	claimWhatIf   azuretest.Claim = "Templates: what-if"
	claimRoles    azuretest.Claim = "When role assignments take effect"
	claimUbuntu   azuretest.Claim = "Ubuntu: cloud-init"
	claimSigned   azuretest.Claim = "Azure's documents: signers' names"
	claimToken    azuretest.Claim = "`k3s kubectl create token`" // #nosec G101 -- no token
	claimReleased azuretest.Claim = "Released k3s: Traefik, CoreDNS, flannel, images"
	claimExport   azuretest.Claim = "A snapshot with export disabled"
	claimCanary   azuretest.Claim = "A scale set can be made by PUT of another's GET"
	claimCapture  azuretest.Claim = "Captures of an agent of released k3s"
)

// steps are the checks of a run on a cluster. Each stands on those before it.
func (s *session) steps() []azuretest.Check {
	all := []azuretest.Check{
		{Name: "Plan", Claims: []azuretest.Claim{claimWhatIf}, Do: s.checkPlan},
		{Name: "Up", Claims: []azuretest.Claim{claimRoles, claimUbuntu}, Do: s.checkUp},
		{Name: "Join", Claims: []azuretest.Claim{claimSigned, claimToken, claimReleased}, Do: s.checkJoin},
	}
	if s.what == "publish" {
		return append(all, azuretest.Check{Name: "Publish", Claims: []azuretest.Claim{claimExport}, Do: s.checkPublish})
	}
	return append(all,
		azuretest.Check{Name: "Canary", Claims: []azuretest.Claim{claimExport, claimCanary, claimCapture}, Do: s.checkCanary},
		azuretest.Check{Name: "Rollback", Do: s.checkRollback})
}

// A rig is the operator's side of a run's cluster.
type rig struct {
	dir     string // cluster.yaml, SSH key, kubeconfig, artifacts
	az      func(context.Context, ...string) error
	version string
	account string // of the shares
}

// prepare writes what ortet cluster needs, and asks nothing of Azure but who the Azure CLI is.
// Call done in any case.
func (s *session) prepare(ctx context.Context, p Program) (done func(), err error) {
	s.rig = &rig{az: p.Az, version: p.Version}
	if s.rig.dir, err = os.MkdirTemp("", "ortet-live-"); err != nil {
		return func() {}, err
	}
	done = func() { _ = os.RemoveAll(s.rig.dir) }
	if err := s.rig.az(ctx, "account", "show", "--subscription", s.who.Subscription, "--output", "none"); err != nil {
		return done, fmt.Errorf("programs are uploaded by the Azure CLI, which does not know subscription %s: %w; az login",
			s.who.Subscription, err)
	}
	text, err := s.ortet(ctx, "--output", "json", "cluster", "artifacts", s.file("artifacts"), "--url", "file:///srv/artifacts",
		"--k3s", s.k3s, "--ortet", filepath.Join(s.files, "ortet"), "--ortet-node", filepath.Join(s.files, "ortet-node"),
		"--images", filepath.Join(s.files, "images.tar"))
	if err != nil {
		return done, err
	}
	groups, _ := s.groups()
	two := 2
	o := k3s.InitOptions{Name: s.cluster, Random: rand.Reader, Spec: k3s.Spec{
		Location: s.region,
		Groups:   k3s.Groups{Compute: groups[0], Storage: groups[1]},
		Network:  k3s.Network{AddressSpace: "10.83.0.0/24", Servers: "10.83.0.0/26", Agents: "10.83.0.64/26"},
		Server:   k3s.Server{Size: machineSize},
		Pools:    []k3s.Pool{{Name: poolName, Size: machineSize, Count: &two, Priority: k3s.Regular}},
		Access:   k3s.Access{SSH: []string{s.own}},
	}}
	if err := json.Unmarshal([]byte(text), &o.Spec.Artifacts); err != nil {
		return done, fmt.Errorf("cannot read what ortet cluster artifacts printed: %w", err)
	}
	file, err := k3s.Init(o)
	if err != nil {
		return done, fmt.Errorf("cannot write cluster.yaml; see LIVE_OWN_ADDRESS: %w", err)
	}
	c, err := k3s.Parse("cluster.yaml", file)
	if err == nil {
		s.rig.account = c.Spec.Storage.Account
		err = os.WriteFile(s.file("cluster.yaml"), file, 0o600)
	}
	if err == nil {
		_, err = s.ortet(ctx, "cluster", "keys")
	}
	return done, err
}

func (s *session) file(name string) string { return filepath.Join(s.rig.dir, name) }

// play runs the steps until one does not end well, then has ortet cluster delete the cluster
// with the rights that it gave, which may outlive their groups.
func (s *session) play(ctx context.Context) (all []*trial) {
	going := true
	for _, check := range s.steps() {
		t := &trial{check: check, kind: fleet.Uniform, reached: map[azuretest.Claim]bool{}, ctx: ctx}
		if all = append(all, t); going && ctx.Err() == nil {
			t.run(azuretest.Fixture{})
			s.say("%-10s %s", check.Name, t.result())
		}
		going = t.result() == asExpected
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer end()
	_, _ = s.ortet(ctx, "cluster", "down", "--all", "--yes", s.cluster) // what it leaves is deleted with the groups, or named
	return all
}

// progressForm is a line of a command's progress.
var progressForm = regexp.MustCompile(`(?m)^[0-9:]{8} .*\n`)

// An exitError is a command that did not end well.
type exitError struct {
	command string
	code    int
	said    string
}

func (e *exitError) Error() string {
	return fmt.Sprintf("ortet %s: exit code %d: %s", e.command, e.code, e.said)
}

// ortet runs a command as the operator would, and shows it, unless its output is JSON. It
// returns standard output.
func (s *session) ortet(ctx context.Context, args ...string) (string, error) {
	var out, said bytes.Buffer
	shown, line := s.out, strings.Join(args, " ")
	s.say("$ ortet %s", line)
	if args[0] == "--output" {
		shown = io.Discard
	}
	if at := slices.Index(args, "cluster"); at >= 0 {
		args = slices.Insert(slices.Clone(args), at+1, "--file", s.file("cluster.yaml"))
	}
	code := cli.Run(ctx, append([]string{"--kubeconfig", s.file("kubeconfig")}, args...), cli.Process{
		In: strings.NewReader(""), Out: io.MultiWriter(&out, shown), Err: io.MultiWriter(&said, s.out), Name: "ortet",
		Version: s.rig.version, Getenv: func(string) string { return "" },
		Credentials: func(context.Context, credential.Config) (credential.Credentials, error) {
			who := s.who
			who.Transport, who.ResourceGroup = s.recorder, ""
			return who, nil
		},
	})
	if code != workflow.ExitDone {
		return "", &exitError{line, code, strings.TrimSpace(progressForm.ReplaceAllString(said.String(), ""))}
	}
	return out.String(), nil
}

// must is ortet in a check, which it ends where the command does not end well. What a command
// refuses before it changes anything, or fails in since the log-in has ended, says nothing of Azure.
func (s *session) must(f azuretest.Fixture, args ...string) string {
	out, err := s.ortet(f.Context(), args...)
	if err == nil {
		return out
	}
	groups, _ := s.groups()
	asked := s.resources.Get(f.Context(), s.group(groups[0]), groupVersion, &group{})
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.code == workflow.ExitRefused || fleet.Is(asked, fleet.KindUnauthenticated) {
		f.T.(*trial).refused = true
		runtime.Goexit()
	}
	f.Fatalf("%v; expected exit code 0", err)
	return ""
}

// mustClaim is must for a command that answers claims where it ends well. Where it does not,
// what differs is not known to be one of them.
func (s *session) mustClaim(f azuretest.Fixture, claims []azuretest.Claim, args ...string) {
	s.must(f, args...)
	for _, c := range claims {
		f.Claim(c)
	}
	f.Claim("")
}

func (s *session) checkPlan(f azuretest.Fixture) {
	s.mustClaim(f, []azuretest.Claim{claimWhatIf}, "cluster", "plan")
}

// checkUp makes storage, uploads what machines fetch from there, and waits for the server.
func (s *session) checkUp(f azuretest.Fixture) {
	s.must(f, "cluster", "up", "--no-wait")
	s.say("uploading programs to share data of storage account %s", s.rig.account)
	if err := s.rig.az(f.Context(), "storage", "file", "upload-batch", "--subscription", s.who.Subscription, "--account-name",
		s.rig.account, "--destination", "data", "--destination-path", "artifacts", "--source", s.file("artifacts"), "--no-progress",
		"--output", "none"); err != nil {
		f.Fatalf("az storage file upload-batch: %v; expected an upload", err)
	}
	s.mustClaim(f, []azuretest.Claim{claimRoles, claimUbuntu}, "cluster", "up")
}

func (s *session) pool() string {
	groups, _ := s.groups()
	return string(s.group(groups[0])) + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + poolName
}

// checkJoin waits for the agents, and for what a released k3s deploys. The lab's deploys
// nothing, and the claim stays unanswered.
func (s *session) checkJoin(f azuretest.Fixture) {
	s.must(f, "cluster", "kubeconfig")
	s.mustClaim(f, []azuretest.Claim{claimSigned, claimToken}, "nodes", "--wait", "30m", "--pool", s.pool())
	const kubectl = "sudo k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml --namespace kube-system "
	if s.must(f, "cluster", "ssh", "--", kubectl+"get deployments --output name") != "" {
		s.mustClaim(f, []azuretest.Claim{claimReleased}, "cluster", "ssh", "--",
			kubectl+"wait deployments --all --for condition=Available --timeout 10m")
	}
}

// agents are names of Nodes by how many have an image version.
func (s *session) agents(f azuretest.Fixture) (names []string, captured int) {
	var list struct {
		Agents []struct{ Node, Image string }
	}
	if err := json.Unmarshal([]byte(s.must(f, "--output", "json", "cluster", "agents")), &list); err != nil {
		f.Fatalf("ortet cluster agents: %v", err)
	}
	for _, a := range list.Agents {
		names = append(names, a.Node)
		if fleet.ResourceID(a.Image).Segment("versions") != "" {
			captured++
		}
	}
	return names, captured
}

// capture captures the first agent, which serves again afterwards.
func (s *session) capture(f azuretest.Fixture, claims []azuretest.Claim, nodes, captured int, flags ...string) {
	names, _ := s.agents(f)
	if len(names) != 2 {
		f.Fatalf("ortet cluster agents: %d agents; expected a donor and a workbench", len(names))
	}
	s.mustClaim(f, claims, append([]string{"capture", names[0], "--image", Image}, flags...)...)
	s.wantAgents(f, nodes, captured)
}

func (s *session) wantAgents(f azuretest.Fixture, nodes, captured int) {
	s.must(f, "nodes", "--wait", "30m", "--pool", s.pool())
	if names, n := s.agents(f); len(names) != nodes || n != captured {
		f.Fatalf("ortet cluster agents: %d agents, %d of an image version; expected %d, %d", len(names), n, nodes, captured)
	}
}

func (s *session) checkPublish(f azuretest.Fixture) {
	s.capture(f, []azuretest.Claim{claimExport}, 2, 0, "--publish-only")
}

func (s *session) checkCanary(f azuretest.Fixture) {
	s.capture(f, []azuretest.Claim{claimExport, claimCanary, claimCapture}, 3, 1, "--canary", "1", "--grow", "1")
}

// checkRollback brings back the pool's first model, and then what cluster.yaml says.
func (s *session) checkRollback(f azuretest.Fixture) {
	names, _ := s.agents(f)
	s.must(f, "rollback", names[0], "--to", "original")
	s.must(f, "cluster", "up")
	s.wantAgents(f, 3, 1)
}

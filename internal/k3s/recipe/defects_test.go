package recipe_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
)

// Defects of azure-k3s-cluster's templates and cloud-init documents, each absent here.
// Those that programs decide are tested with ortet-node and ortet admission.

// everything is all that machines of a cluster are given, files decoded.
func everything(t *testing.T, c *k3s.Cluster) string {
	t.Helper()
	var b strings.Builder
	d := render(t, c, facts())
	b.Write(d.Settings)
	for _, document := range d.CloudInit {
		all := parse(t, document)
		for _, f := range all.WriteFiles {
			b.WriteString(f.Path + "\n" + f.Content + "\n")
		}
		for _, command := range all.RunCommands {
			b.WriteString(strings.Join(command, " ") + "\n")
		}
	}
	return b.String()
}

func lacks(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("machines are given %q", w)
		}
	}
}

func TestDefectNoUnauthenticatedJoinOrDrain(t *testing.T) {
	for _, c := range clusters() {
		lacks(t, everything(t, c), "node-token", "1337", "/join/", "/drain/", "shell=True")
	}
}

func TestDefectNoScriptFromTheInternet(t *testing.T) {
	for _, c := range clusters() {
		lacks(t, everything(t, c), "get.k3s.io", "curl", "wget", "| sh")
	}
}

func TestDefectOneServerAlone(t *testing.T) {
	for name, c := range clusters() {
		if all := of(t, render(t, c, facts()), "Microsoft.Compute/virtualMachines"); len(all) != 1 {
			t.Errorf("%s: %d servers", name, len(all))
		}
	}
	text, err := k3s.Init(k3s.InitOptions{Name: "demo", Spec: k3s.Spec{Location: "westeurope", Storage: k3s.Storage{Account: "demo123"}}})
	if err != nil {
		t.Fatal(err)
	}
	more := bytes.Replace(text, []byte("  server:\n"), []byte("  server:\n    count: 2\n"), 1)
	if _, err := k3s.Parse("cluster.yaml", more); err == nil || !strings.Contains(err.Error(), "spec.server.count") {
		t.Errorf("two servers: %v", err)
	}
}

// The installer's environment changed scripts that it rendered.
func TestDefectEnvironmentChangesNothing(t *testing.T) {
	before := render(t, full(), facts()).CloudInit["agents"]
	for _, name := range []string{"HOSTNAME", "TOKEN", "SSH_PORT", "STORAGE_ACCOUNT_KEY", "ORTET_ADMISSION_ARGS", "MAINPID"} {
		t.Setenv(name, "from-the-environment")
	}
	if after := render(t, full(), facts()).CloudInit["agents"]; !bytes.Equal(before, after) {
		t.Error("the document depends on the environment")
	}
}

func TestDefectStorageKeyIsNotInCustomData(t *testing.T) {
	lacks(t, everything(t, full()), "password=$", "AccountKey", "STORAGE_ACCOUNT_KEY")
	for _, one := range of(t, render(t, full(), facts()), "Microsoft.Compute/virtualMachines") {
		if data := at(one, "properties", "osProfile", "customData").(string); strings.HasPrefix(data, "[") || strings.Contains(data, "listKeys") {
			t.Error("customData is an expression, which could have a key in it")
		}
	}
}

func TestDefectTimeZoneAndPortAreNotFixed(t *testing.T) {
	lacks(t, everything(t, minimal()), "Port 2", "Europe/")
	document := string(render(t, minimal(), facts()).CloudInit["server"])
	lacks(t, document, "timezone")
	c := full()
	c.Spec.Access.SSHPort = 2200
	if text := everything(t, c); !strings.Contains(text, "\nPort 2200\n") || !strings.Contains(text, `"content":"Port 2200\n"`) || !strings.Contains(text, `port = 2200\n`) {
		t.Error("sshd or fail2ban has another port than access.sshPort")
	}
}

func TestDefectNetworkOverlapsNeitherPodsNorServices(t *testing.T) {
	n := minimal().Spec.Network
	vnet := netip.MustParsePrefix(n.AddressSpace)
	for _, other := range []string{n.Pods, n.Services} {
		if vnet.Overlaps(netip.MustParsePrefix(other)) {
			t.Errorf("the address space %s overlaps %s", vnet, other)
		}
	}
}

// A B-series size has no Spot, Basic addresses are retired, and new virtual networks
// have no default outbound access.
func TestDefectNothingThatAzureRefusesToday(t *testing.T) {
	d := render(t, minimal(), facts())
	for _, p := range of(t, d, "Microsoft.Compute/virtualMachineScaleSets") {
		if size := at(p, "sku", "name").(string); strings.HasPrefix(size, "Standard_B") {
			t.Errorf("the default size %s has no Spot", size)
		}
	}
	for _, a := range of(t, d, "Microsoft.Network/publicIPAddresses") {
		if at(a, "sku", "name") != "Standard" {
			t.Errorf("address %s is of SKU %v", a["name"], at(a, "sku", "name"))
		}
	}
	if len(of(t, d, "Microsoft.Network/natGateways")) != 1 {
		t.Error("there is no NAT gateway")
	}
}

// Waiting happens in units: runcmd only enables and starts them.
func TestDefectProvisioningDoesNotWait(t *testing.T) {
	for _, c := range clusters() {
		for machine, document := range render(t, c, facts()).CloudInit {
			for _, command := range parse(t, document).RunCommands {
				text := strings.Join(command, " ")
				if command[0] != "systemctl" || (strings.Contains(text, "start") && !strings.Contains(text, "--no-block")) {
					t.Errorf("%s: runcmd has %q", machine, text)
				}
			}
		}
	}
}

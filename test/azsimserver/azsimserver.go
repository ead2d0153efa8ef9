// Package azsimserver starts azsim as a server of its own process, with pools of
// nodes, for demo, lab, benchmarks and end-to-end tests, and drives it as a
// user of Azure would: through the SDK and over TLS. Tests with an azsim and a kubesim in
// their own process take its pools, and what Ortet's pods report.
package azsimserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim"
	ours "github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/test/process"
)

// Kinds of instances.
const (
	Hollow  = "hollow"
	Machine = "machine"
)

// Config says what to start. Dir, Bin, Kubeconfig and Pools are required.
type Config struct {
	Dir        string // made, with mode 0700
	Bin        string // folder with azsim and ortet-node
	Speed      float64
	Kubeconfig string
	Instances  string // Hollow or Machine
	ClientCA   string // PEM file: who may ask hollow kubelets; "" lets everybody on this machine
	Listen     string // "" means a free port on loopback
	Pools      []Pool
	Spec       map[string]any // more of the spec: faults, principals, profile
	Args       []string       // more flags of azsim serve
}

// A Pool is a scale set to begin with.
type Pool struct {
	Name     string
	Capacity int64
	Size     string // "" means Standard_D2s_v5
	// CustomData is what the pool's customData is, a cloud-config.
	CustomData string
	// Change alters the scale set's ARM body before it is given to azsim.
	Change func(body map[string]any)
}

// Endpoint is what azsim writes of itself.
type Endpoint struct {
	ResourceManager string `json:"resourceManager"`
	ActiveDirectory string `json:"activeDirectory"`
	Tenant          string `json:"tenant"`
	Subscription    string `json:"subscription"`
	ResourceGroup   string `json:"resourceGroup"`
	ClientID        string `json:"clientId"`
	ClientSecret    string `json:"clientSecret"`
	CAFile          string `json:"caFile"`
	// The root of who signs attested documents, and an HTTP proxy that has its issuer's
	// certificate.
	AttestationCAFile string `json:"attestationCAFile"`
	AttestationProxy  string `json:"attestationProxy"`
	AzureConfig       string `json:"azureConfig"`
	Kubeconfig        string `json:"kubeconfig"`
}

// Azure is a running one.
type Azure struct {
	Endpoint Endpoint
	Dir      string
	process  *process.Process
	options  *arm.ClientOptions
	identity azcore.TokenCredential
}

// Start starts azsim and returns when it serves; its pools boot meanwhile.
func Start(ctx context.Context, c Config) (_ *Azure, err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for k, v := range c.Spec {
		spec[k] = v
	}
	var sets []any
	for _, p := range c.Pools {
		sets = append(sets, map[string]any{"name": p.Name, "body": p.body()})
	}
	spec["scaleSets"] = sets
	text, err := yaml.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write azsim's spec: %w", err)
	}
	specFile := filepath.Join(c.Dir, "spec.yaml")
	if err := os.WriteFile(specFile, text, 0o600); err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(c.Bin)
	if err != nil {
		return nil, err
	}
	listen := cmp.Or(c.Listen, "127.0.0.1:0")
	args := append([]string{"serve", "--dir", c.Dir, "--listen", listen, "--speed", fmt.Sprint(max(c.Speed, 1)), "--spec", specFile,
		"--kubeconfig", c.Kubeconfig, "--instances", c.Instances}, c.Args...)
	if c.Instances == Hollow {
		args = append(args, "--program", "ortet-node="+filepath.Join(bin, "ortet-node"))
		if c.ClientCA != "" {
			args = append(args, "--client-ca", c.ClientCA)
		}
	}
	a := &Azure{Dir: c.Dir}
	a.process, err = process.Start(process.Command{
		Name: "azsim", Binary: filepath.Join(bin, "azsim"), Args: args,
		Env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")), Log: filepath.Join(c.Dir, "azsim.log"),
	})
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(err, a.Stop(stop))
	}
	return a, a.connect()
}

// await reads endpoint.json as soon as it is there.
func (a *Azure) await(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(a.Dir, "endpoint.json"))
		if err == nil {
			return json.Unmarshal(text, &a.Endpoint)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for azsim: %w; its last words:\n%s", ctx.Err(), a.process.LogTail(20))
		case <-a.process.Done():
			return fmt.Errorf("azsim ended (%w); its last words:\n%s", a.process.Err(), a.process.LogTail(20))
		case <-tick.C:
		}
	}
}

func (a *Azure) connect() error {
	ca, err := os.ReadFile(a.Endpoint.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s holds no certificate", a.Endpoint.CAFile)
	}
	client := azcore.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: strings.TrimSuffix(a.Endpoint.ActiveDirectory, "adfs"),
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: a.Endpoint.ResourceManager, Audience: a.Endpoint.ResourceManager},
			},
		},
		Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
	}
	a.identity, err = azidentity.NewClientSecretCredential("adfs", a.Endpoint.ClientID, a.Endpoint.ClientSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: client, DisableInstanceDiscovery: true})
	if err != nil {
		return err
	}
	a.options = &arm.ClientOptions{ClientOptions: client, DisableRPRegistration: true}
	return nil
}

// Stop ends azsim, with its instances.
func (a *Azure) Stop(ctx context.Context) error { return a.process.Stop(ctx, 90*time.Second) }

// Log quotes the end of azsim's log.
func (a *Azure) Log() string { return a.process.LogTail(40) }

// Clients returns the SDK's factory of compute clients.
func (a *Azure) Clients() (*armcompute.ClientFactory, error) {
	return armcompute.NewClientFactory(a.Endpoint.Subscription, a.identity, a.options)
}

// Resources returns Ortet's own client of ARM.
func (a *Azure) Resources() (*ours.Resources, error) {
	return ours.NewResources(ours.Options{Cloud: a.options.Cloud, Credential: a.identity, Transport: a.options.Transport, Version: "test"})
}

// Pool reads a scale set.
func (a *Azure) Pool(ctx context.Context, pool string) (armcompute.VirtualMachineScaleSet, error) {
	f, err := a.Clients()
	if err != nil {
		return armcompute.VirtualMachineScaleSet{}, err
	}
	got, err := f.NewVirtualMachineScaleSetsClient().Get(ctx, a.Endpoint.ResourceGroup, pool, nil)
	return got.VirtualMachineScaleSet, err
}

// Model returns what matters of a scale set's model as indented JSON.
func (a *Azure) Model(ctx context.Context, pool string) (string, error) {
	set, err := a.Pool(ctx, pool)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(set.Properties.VirtualMachineProfile)
	if err != nil {
		return "", err
	}
	var shown map[string]any
	if err := json.Unmarshal(text, &shown); err != nil {
		return "", err
	}
	delete(shown, "networkProfile")
	text, err = json.MarshalIndent(shown, "", "  ")
	return string(text), err
}

// ScaleOut adds to a scale set's capacity and returns when Azure has done it.
func (a *Azure) ScaleOut(ctx context.Context, pool string, by int64) error {
	set, err := a.Pool(ctx, pool)
	if err != nil {
		return err
	}
	f, err := a.Clients()
	if err != nil {
		return err
	}
	poller, err := f.NewVirtualMachineScaleSetsClient().BeginUpdate(ctx, a.Endpoint.ResourceGroup, pool, armcompute.VirtualMachineScaleSetUpdate{
		SKU: &armcompute.SKU{Name: set.SKU.Name, Tier: set.SKU.Tier, Capacity: to.Ptr(*set.SKU.Capacity + by)},
	}, nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(ctx, nil)
	return err
}

// body is the scale set as ARM takes it: what a cluster made by Cluster API or
// AKS Engine looks like in the points that matter here.
func (p Pool) body() map[string]any {
	size := p.Size
	if size == "" {
		size = "Standard_D2s_v5"
	}
	profile := map[string]any{
		"storageProfile": map[string]any{
			"imageReference": map[string]any{"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"},
			"osDisk":         map[string]any{"createOption": "FromImage", "osType": "Linux", "caching": "ReadWrite", "diskSizeGB": 30, "managedDisk": map[string]any{"storageAccountType": "Premium_LRS"}},
		},
		"osProfile": map[string]any{
			"computerNamePrefix": p.Name, "adminUsername": "azureuser",
			"customData":         base64.StdEncoding.EncodeToString([]byte(p.CustomData)),
			"linuxConfiguration": map[string]any{"disablePasswordAuthentication": true, "ssh": map[string]any{"publicKeys": []any{map[string]any{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA7kUYRTzmHqVg0m9bN8h1v3sQ2o5fJ4c6dWxXeYzabc operator"}}}},
		},
		"networkProfile": map[string]any{"networkInterfaceConfigurations": []any{map[string]any{
			"name": "nic", "properties": map[string]any{"primary": true, "enableAcceleratedNetworking": false, "ipConfigurations": []any{map[string]any{
				"name": "ip", "properties": map[string]any{"primary": true, "subnet": map[string]any{"id": "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes"}},
			}}},
		}}},
		"diagnosticsProfile": map[string]any{"bootDiagnostics": map[string]any{"enabled": true}},
		"extensionProfile": map[string]any{"extensions": []any{
			map[string]any{"name": "vmssCSE", "properties": map[string]any{
				"publisher": "Microsoft.Azure.Extensions", "type": "CustomScript", "typeHandlerVersion": "2.1", "autoUpgradeMinorVersion": true,
				"settings": map[string]any{}, "protectedSettings": map[string]any{"commandToExecute": "/opt/azure/containers/provision.sh"},
			}},
			map[string]any{"name": p.Name + "-computeAKSLinuxBilling", "properties": map[string]any{
				"publisher": "Microsoft.AKS", "type": "Compute.AKS-Engine.Linux.Billing", "typeHandlerVersion": "1.0", "autoUpgradeMinorVersion": true, "settings": map[string]any{},
			}},
		}},
	}
	body := map[string]any{
		"location": "westeurope",
		"sku":      map[string]any{"name": size, "tier": "Standard", "capacity": p.Capacity},
		"tags":     map[string]any{"pool": p.Name},
		"properties": map[string]any{
			"orchestrationMode": "Uniform", "overprovision": false, "singlePlacementGroup": true,
			"upgradePolicy": map[string]any{"mode": "Manual"}, "virtualMachineProfile": profile,
		},
	}
	if p.Change != nil {
		p.Change(body)
	}
	return body
}

// CloudConfig is a pool's customData that gives a node what it needs to join.
func CloudConfig(files map[string][]byte, commands ...string) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nwrite_files:\n")
	for _, path := range sortedKeys(files) {
		fmt.Fprintf(&b, "- path: %s\n  permissions: \"0600\"\n  encoding: b64\n  content: %s\n", path, base64.StdEncoding.EncodeToString(files[path]))
	}
	if len(commands) > 0 {
		b.WriteString("runcmd:\n")
		for _, c := range commands {
			fmt.Fprintf(&b, "- %s\n", c)
		}
	}
	return b.String()
}

func sortedKeys(m map[string][]byte) []string { return slices.Sorted(maps.Keys(m)) }

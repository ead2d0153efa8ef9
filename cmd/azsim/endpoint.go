package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/ortet/ortet/azsim"
)

const (
	endpointFile    = "endpoint.json"
	attestationFile = "attestation-ca.pem"
)

// An endpoint is what a client needs to know of a server that is ready.
type endpoint struct {
	ResourceManager string `json:"resourceManager"` // base URL
	ActiveDirectory string `json:"activeDirectory"` // authority's base URL
	Tenant          string `json:"tenant"`          // "adfs": spares clients the look-up of the public log-in host
	Subscription    string `json:"subscription"`
	ResourceGroup   string `json:"resourceGroup"`
	Location        string `json:"location"`
	ClientID        string `json:"clientId"`
	ClientSecret    string `json:"clientSecret"`
	CAFile          string `json:"caFile"`
	// AttestationCAFile is the root of who signs attested documents, and
	// AttestationProxy an HTTP proxy that has its issuer's certificate, which the
	// documents say is at www.microsoft.com.
	AttestationCAFile string `json:"attestationCAFile"`
	AttestationProxy  string `json:"attestationProxy"`
	// InstanceMetadata, an instance's id and "/metadata" is its metadata service.
	InstanceMetadata string `json:"instanceMetadata"`
	AzureConfig      string `json:"azureConfig"` // path of azure.json
	Kubeconfig       string `json:"kubeconfig"`  // "" without a cluster

	azureJSON []byte
}

// newEndpoint writes azure.json and azurestackcloud.json, and gives the rest.
func newEndpoint(o serveOptions, s *azsim.Server, addr string) (*endpoint, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	base := "https://" + net.JoinHostPort(host, port)
	who := s.Principals[0]
	for _, p := range s.Principals {
		if p.Secret != "" {
			who = p
			break
		}
	}
	location := azsim.DefaultLocation
	if len(s.Locations) > 0 {
		location = s.Locations[0].Name
	}
	e := &endpoint{
		ResourceManager: base, ActiveDirectory: base + "/", Tenant: "adfs",
		Subscription:  cmp.Or(s.Subscription, azsim.DefaultSubscription),
		ResourceGroup: cmp.Or(s.ResourceGroup, azsim.DefaultResourceGroup),
		Location:      cmp.Or(s.Location, location),
		ClientID:      who.ClientID, ClientSecret: who.Secret,
		CAFile: filepath.Join(o.dir, caFile), AttestationCAFile: filepath.Join(o.dir, attestationFile), AzureConfig: filepath.Join(o.dir, "azure.json"), Kubeconfig: o.kubeconfig,
	}
	// The names are those of the Kubernetes cloud provider's configuration.
	e.azureJSON, err = json.MarshalIndent(map[string]any{
		"cloud": "AzureStackCloud", "identitySystem": "adfs", "tenantId": e.Tenant, "subscriptionId": e.Subscription,
		"resourceGroup": e.ResourceGroup, "location": e.Location, "vmType": "vmss",
		"aadClientId": e.ClientID, "aadClientSecret": e.ClientSecret, "useManagedIdentityExtension": false,
		"useInstanceMetadata": true, "resourceManagerEndpoint": base + "/",
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := writeFile(e.AzureConfig, e.azureJSON); err != nil {
		return nil, err
	}
	// And these those of go-autorest's environment file, which the variable
	// AZURE_ENVIRONMENT_FILEPATH names.
	return e, writeJSON(filepath.Join(o.dir, "azurestackcloud.json"), map[string]any{
		"name": "AzureStackCloud", "managementPortalURL": base + "/portal", "publishSettingsURL": "",
		"serviceManagementEndpoint": base + "/", "resourceManagerEndpoint": base + "/", "activeDirectoryEndpoint": e.ActiveDirectory,
		"galleryEndpoint": base + "/gallery", "keyVaultEndpoint": "", "graphEndpoint": base + "/graph/",
		"storageEndpointSuffix": "azsim.invalid", "keyVaultDNSSuffix": "vault.azsim.invalid", "tokenAudience": base + "/",
		"resourceIdentifiers": map[string]any{"graph": "", "keyVault": "", "datalake": "", "batch": "", "operationalInsights": "", "storage": ""},
	})
}

func (e *endpoint) write(dir string) error { return writeJSON(filepath.Join(dir, endpointFile), e) }

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}

// writeFile puts a file in place at once, readable by its owner alone.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".azsim-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is left of a failure
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

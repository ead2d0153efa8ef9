package lab

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed mount.cifs
var mountCIFS string

// Where a machine has the certificates that azsim serve gives it.
const (
	trustedARM         = "/run/platform/trust/arm.pem"
	trustedAttestation = "/run/platform/trust/attestation.pem"
	stackFile          = "/etc/ortet/azurestackcloud.json"
)

// Elastic is where the machines of an elastic cluster find azsim. Each address is a
// frontend's.
type Elastic struct {
	ResourceManager  string // "https://10.96.0.2", which azsim's certificate has to name
	AttestationProxy string // "http://10.96.0.2:80", which leads to azsim serve's --listen-plain
	StorageSuffix    string // of storage accounts' names, "azsim.invalid"
}

// ElasticOverlay writes to dir, for Overlay, what a machine of an elastic cluster has in
// the lab and not in Azure: mount.cifs, and the environment of ortet-boot.service and
// ortet-admission.service, which leads them to azsim.
func ElasticOverlay(dir string, at Elastic) error {
	arm := strings.TrimSuffix(at.ResourceManager, "/") + "/"
	// The names are those of go-autorest's environment file.
	stack, err := json.MarshalIndent(map[string]any{
		"name": "AzureStackCloud", "managementPortalURL": arm + "portal", "publishSettingsURL": "",
		"serviceManagementEndpoint": arm, "resourceManagerEndpoint": arm, "activeDirectoryEndpoint": arm,
		"galleryEndpoint": arm + "gallery", "keyVaultEndpoint": "", "graphEndpoint": arm + "graph/",
		"storageEndpointSuffix": at.StorageSuffix, "keyVaultDNSSuffix": "vault." + at.StorageSuffix, "tokenAudience": arm,
	}, "", "  ")
	if err != nil {
		return err
	}
	boot := []string{
		"ORTET_RESOURCE_MANAGER=" + strings.TrimSuffix(arm, "/"),
		"SSL_CERT_FILE=" + trustedARM,
		"ORTET_STORAGE_SUFFIX=" + at.StorageSuffix,
	}
	admission := []string{
		"SSL_CERT_FILE=" + trustedARM,
		"AZURE_ENVIRONMENT_FILEPATH=" + stackFile,
		"ORTET_ADMISSION_FLAGS=--attestation-roots=" + trustedAttestation,
		// The issuer's certificate is at Microsoft's address, for which azsim stands.
		"HTTP_PROXY=" + at.AttestationProxy,
		"NO_PROXY=localhost,127.0.0.0/8,10.0.0.0/8,169.254.169.254",
	}
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{"usr/sbin/mount.cifs", mountCIFS, 0o755}, // Debian's /sbin is a link to it
		{"etc/default/ortet-boot", strings.Join(boot, "\n") + "\n", 0o644},
		{"etc/default/ortet-admission", strings.Join(admission, "\n") + "\n", 0o644},
		{stackFile, string(stack) + "\n", 0o644},
	} {
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil {
			return fmt.Errorf("write the elastic cluster's overlay: %w", err)
		}
	}
	return nil
}

package machine

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ortet/ortet/azsim"
)

// writeSeed writes what cloud-init's NoCloud source reads, in the place of
// Azure's metadata and provisioning media. The instance id is the VM's, so that
// a computer that starts again is itself and a clone is new.
func writeSeed(dir string, c azsim.Computer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	meta, err := json.MarshalIndent(map[string]any{ // JSON is YAML
		"instance-id":       c.VMID,
		"local-hostname":    c.HostName,
		"availability-zone": c.Zone,
		"region":            c.Location,
	}, "", "  ")
	if err != nil {
		return err
	}
	vendor, err := vendorData(c)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"meta-data": meta, "user-data": c.CustomData, "vendor-data": vendor} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// vendorData makes the account that the model asks for.
func vendorData(c azsim.Computer) ([]byte, error) {
	if c.AdminUsername == "" {
		return nil, nil
	}
	account, err := json.Marshal(map[string]any{
		"users": []any{map[string]any{
			"name":                c.AdminUsername,
			"gecos":               c.AdminUsername,
			"shell":               "/bin/bash",
			"sudo":                "ALL=(ALL) NOPASSWD:ALL",
			"lock_passwd":         true,
			"ssh_authorized_keys": append([]string{}, c.SSHKeys...),
		}},
	})
	if err != nil {
		return nil, err
	}
	return append([]byte("#cloud-config\n"), account...), nil
}

// ovfEnvironment is the provisioning document as Azure's cloud-init source
// leaves it on the disk, /var/lib/waagent/ovf-env.xml: from here custom data
// can be read back. Element names are those of the published OVF environment
// of Azure's agent.
func ovfEnvironment(c azsim.Computer) ([]byte, error) {
	type set struct {
		Type       string `xml:"ConfigurationSetType"`
		HostName   string `xml:"HostName"`
		UserName   string `xml:"UserName,omitempty"`
		NoPassword bool   `xml:"DisableSshPasswordAuthentication"`
		CustomData string `xml:"CustomData,omitempty"`
	}
	type section struct {
		Version string `xml:"http://schemas.microsoft.com/windowsazure Version"`
		Set     *set   `xml:"http://schemas.microsoft.com/windowsazure LinuxProvisioningConfigurationSet,omitempty"`
	}
	type environment struct {
		XMLName      xml.Name `xml:"http://schemas.dmtf.org/ovf/environment/1 Environment"`
		Provisioning section  `xml:"http://schemas.microsoft.com/windowsazure ProvisioningSection"`
	}
	doc := environment{Provisioning: section{Version: "1.0", Set: &set{
		Type:       "LinuxProvisioningConfiguration",
		HostName:   c.HostName,
		UserName:   c.AdminUsername,
		NoPassword: true,
		CustomData: base64.StdEncoding.EncodeToString(c.CustomData),
	}}}
	body, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the OVF environment of %s: %w", c.ID, err)
	}
	return append([]byte(xml.Header), append(body, '\n')...), nil
}

// leaveEnvironment puts the OVF environment on the mounted disk.
func leaveEnvironment(root string, c azsim.Computer) error {
	body, err := ovfEnvironment(c)
	if err != nil {
		return err
	}
	disk, err := os.OpenRoot(root) // a link on the disk must not lead out of it
	if err != nil {
		return err
	}
	defer disk.Close()
	if err := disk.MkdirAll("var/lib/waagent", 0o700); err != nil {
		return err
	}
	return disk.WriteFile("var/lib/waagent/ovf-env.xml", body, 0o600)
}

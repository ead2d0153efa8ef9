package hollow

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim"
)

// boot does to the tree what Linux, cloud-init and the Azure agent do to the disk
// when the computer starts.
func (r *running) boot() error {
	if err := r.substrate.unmount(r.tree); err != nil { // left by a boot that failed
		return err
	}
	r.console.printf("[    0.000000] Linux version 6.8.0-1021-azure (%s)", r.computer.Size)
	for _, name := range mountPoints {
		if err := r.tree.mkdir("/"+name, 0o755); err != nil {
			return err
		}
	}
	id, err := r.tree.commitMachineID()
	if err != nil {
		return fmt.Errorf("machine-id: %w", err)
	}
	r.machineID = id
	r.console.printf("[    1.204000] systemd[1]: Hostname set to <%s>.", r.tree.hostName())
	if err := r.tree.mkdir("/var/log/journal/"+id, 0o755); err != nil {
		return err
	}
	if r.computer.Provision {
		if err := r.provision(); err != nil {
			return fmt.Errorf("provision: %w", err)
		}
	}
	r.nodeName = strings.ToLower(r.tree.hostName())
	if err := r.tree.appendFile("/var/log/wtmp", fmt.Appendf(nil, "reboot system boot %s\n", r.bootedAt.UTC().Format(time.RFC3339)), 0o664); err != nil {
		return err
	}
	r.console.printf("[    4.100000] systemd[1]: Reached target multi-user.target.")
	r.console.printf("%s login: ", r.tree.hostName())
	return r.journal("systemd", "Startup finished")
}

// journal writes a line to the journal, which systemd keys by machine-id.
func (r *running) journal(unit, format string, args ...any) error {
	line := fmt.Sprintf("%s %s %s: %s\n", time.Now().UTC().Format(time.RFC3339Nano), r.tree.hostName(), unit, fmt.Sprintf(format, args...))
	return r.tree.appendFile("/var/log/journal/"+r.machineID+"/system.journal", []byte(line), 0o640)
}

// commitMachineID returns the machine-id, made if the tree has none. systemd
// prefers D-Bus' over a new one, so a copy left there comes back.
// Source: machine-id(5), systemd-machine-id-setup(1).
func (t tree) commitMachineID() (string, error) {
	const file = "/etc/machine-id"
	id, err := t.readTrimmed(file)
	if err != nil {
		return "", err
	}
	if id != "" && id != "uninitialized" {
		return id, nil
	}
	if id, err = t.readTrimmed("/var/lib/dbus/machine-id"); err != nil {
		return "", err
	}
	if id == "" || id == "uninitialized" {
		raw := make([]byte, 16)
		if _, err := rand.Read(raw); err != nil {
			return "", err
		}
		raw[6] = raw[6]&0x0f | 0x40
		raw[8] = raw[8]&0x3f | 0x80
		id = hex.EncodeToString(raw)
	}
	if err := t.remove(file); err != nil {
		return "", err
	}
	return id, t.writeFile(file, []byte(id+"\n"), 0o444)
}

// hostName returns what /etc/hostname says, as the kernel then does too.
func (t tree) hostName() string {
	name, err := t.readTrimmed("/etc/hostname")
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}

// cloudCfg is what we read of cloud-init's own configuration.
type cloudCfg struct {
	PreserveHostname bool  `json:"preserve_hostname"`
	SSHDeleteKeys    *bool `json:"ssh_deletekeys"`
}

func (t tree) cloudCfg() (cloudCfg, error) {
	var cfg cloudCfg
	more, err := t.glob("/etc/cloud/cloud.cfg.d", "*.cfg")
	if err != nil {
		return cfg, err
	}
	for _, name := range append([]string{"/etc/cloud/cloud.cfg"}, more...) {
		content, err := t.readFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return cfg, err
		}
		if err := yaml.Unmarshal(content, &cfg); err != nil {
			return cfg, fmt.Errorf("%s: %w", name, err)
		}
	}
	return cfg, nil
}

// provision is the first boot of a disk that the platform made for this
// computer. cloud-init takes it for a new instance by its instance-id, and then
// sets the host name and replaces SSH host keys, whatever the disk held; what
// it does not know of stays as it was on the disk.
func (r *running) provision() error {
	t, c := r.tree, r.computer
	cfg, err := t.cloudCfg()
	if err != nil {
		return err
	}
	previous, err := t.readTrimmed("/var/lib/cloud/data/instance-id")
	if err != nil {
		return err
	}
	config, does, configErr := parseCustomData(c.CustomData)
	if err := r.agentFiles(); err != nil {
		return err
	}
	if previous != c.VMID {
		if !cfg.PreserveHostname {
			if err := t.setHostName(c.HostName); err != nil {
				return err
			}
		}
		if err := t.hostKeys(c.HostName, cfg.SSHDeleteKeys == nil || *cfg.SSHDeleteKeys); err != nil {
			return err
		}
		if err := r.adminUser(); err != nil {
			return err
		}
		if configErr == nil {
			configErr = config.apply(t)
		}
		if does {
			if err := r.prepareNode(); err != nil {
				return err
			}
		}
	}
	if err := r.cloudFiles(previous, configErr); err != nil {
		return err
	}
	return r.networkFiles()
}

func (t tree) setHostName(name string) error {
	return errors.Join(
		t.writeFile("/etc/hostname", []byte(name+"\n"), 0o644),
		t.writeFile("/etc/hosts", []byte("127.0.0.1 localhost\n127.0.1.1 "+name+"\n::1 ip6-localhost ip6-loopback\n"), 0o644),
	)
}

// hostKeys makes SSH host keys, of one kind to be quick about it.
func (t tree) hostKeys(comment string, replace bool) error {
	old, err := t.glob("/etc/ssh", "ssh_host_*_key*")
	if err != nil {
		return err
	}
	if len(old) > 0 && !replace {
		return nil
	}
	for _, name := range old {
		if err := t.remove(name); err != nil {
			return err
		}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "root@"+comment)
	if err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	return errors.Join(
		t.writeFile("/etc/ssh/ssh_host_ed25519_key", pem.EncodeToMemory(block), 0o600),
		t.writeFile("/etc/ssh/ssh_host_ed25519_key.pub", append(ssh.MarshalAuthorizedKey(key)[:len(ssh.MarshalAuthorizedKey(key))-1], []byte(" root@"+comment+"\n")...), 0o644),
	)
}

// agentFiles writes what the Azure Linux agent keeps of a deployment.
func (r *running) agentFiles() error {
	t, c := r.tree, r.computer
	var host, user, data strings.Builder
	for _, e := range []struct {
		into *strings.Builder
		text string
	}{{&host, c.HostName}, {&user, c.AdminUsername}, {&data, base64.StdEncoding.EncodeToString(c.CustomData)}} {
		if err := xml.EscapeText(e.into, []byte(e.text)); err != nil {
			return err
		}
	}
	customData := ""
	if c.CustomData != nil {
		customData = "<ns1:CustomData>" + data.String() + "</ns1:CustomData>"
	}
	environment := `<?xml version="1.0" encoding="utf-8"?>
<ns0:Environment xmlns:ns0="http://schemas.dmtf.org/ovf/environment/1" xmlns:ns1="http://schemas.microsoft.com/windowsazure">
  <ns1:ProvisioningSection><ns1:Version>1.0</ns1:Version><ns1:LinuxProvisioningConfigurationSet>
    <ns1:ConfigurationSetType>LinuxProvisioningConfiguration</ns1:ConfigurationSetType>
    <ns1:HostName>` + host.String() + `</ns1:HostName><ns1:UserName>` + user.String() + `</ns1:UserName>
    <ns1:DisableSshPasswordAuthentication>true</ns1:DisableSshPasswordAuthentication>` + customData + `
  </ns1:LinuxProvisioningConfigurationSet></ns1:ProvisioningSection>
</ns0:Environment>
`
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	files := []struct {
		name    string
		content []byte
		mode    fs.FileMode
	}{
		{"ovf-env.xml", []byte(environment), 0o600},
		{"SharedConfig.xml", []byte(`<SharedConfig version="1.0.0.0"><Deployment name="` + c.VMID + `"/><Instances><Instance id="_` + host.String() + `"/></Instances></SharedConfig>` + "\n"), 0o600},
		{"GoalState.1.xml", []byte(`<GoalState><Incarnation>1</Incarnation><Container><ContainerId>` + c.VMID + `</ContainerId></Container></GoalState>` + "\n"), 0o600},
		{"ExtensionsConfig.1.xml", []byte("<Extensions/>\n"), 0o600},
		{"Incarnation", []byte("1"), 0o600},
		{"published_hostname", []byte(c.HostName), 0o644},
		{"provisioned", []byte(c.VMID), 0o600},
		{"TransportPrivate.pem", key, 0o600},
		{"history/" + c.VMID + "/GoalState.xml", []byte("<GoalState/>\n"), 0o600},
		{"events/1.tld", []byte("{}"), 0o600},
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, t.writeFile("/var/lib/waagent/"+f.name, f.content, f.mode))
	}
	if c.CustomData != nil {
		errs = append(errs, t.writeFile("/var/lib/waagent/CustomData", []byte(base64.StdEncoding.EncodeToString(c.CustomData)), 0o600))
	}
	errs = append(errs, r.extensionFiles(),
		t.appendFile("/var/log/waagent.log", fmt.Appendf(nil, "%s INFO ExtHandler Provisioning %s (%s)\n", r.stamp(), c.HostName, c.VMID), 0o644),
		t.mkdir("/var/log/azure", 0o755))
	return errors.Join(errs...)
}

func (r *running) stamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }

// cloudFiles writes what cloud-init keeps of an instance, and its result.
func (r *running) cloudFiles(previous string, problem error) error {
	t, c := r.tree, r.computer
	previous = cmp.Or(previous, "NO_PREVIOUS_INSTANCE_ID")
	instance := "/var/lib/cloud/instances/" + c.VMID
	problems := []string{}
	if problem != nil {
		problems = append(problems, problem.Error())
		r.console.printf("cloud-init[612]: %s", problem)
	}
	result, err := json.Marshal(map[string]any{"v1": map[string]any{"datasource": "DataSourceAzure [seed=/dev/sr0]", "errors": problems}})
	if err != nil {
		return err
	}
	name, err := json.Marshal(map[string]string{"hostname": c.HostName, "fqdn": c.HostName})
	if err != nil {
		return err
	}
	return errors.Join(
		t.writeFile("/var/lib/cloud/data/instance-id", []byte(c.VMID+"\n"), 0o644),
		t.writeFile("/var/lib/cloud/data/previous-instance-id", []byte(previous+"\n"), 0o644),
		t.writeFile("/var/lib/cloud/data/previous-hostname", []byte(c.HostName+"\n"), 0o644),
		t.writeFile("/var/lib/cloud/data/set-hostname", name, 0o644),
		t.writeFile("/var/lib/cloud/data/result.json", result, 0o644),
		t.writeFile(instance+"/user-data.txt", c.CustomData, 0o600),
		t.writeFile(instance+"/cloud-config.txt", c.CustomData, 0o600),
		t.writeFile(instance+"/boot-finished", []byte(r.stamp()+"\n"), 0o644),
		t.writeFile(instance+"/sem/config_set_hostname", []byte(r.stamp()+"\n"), 0o644),
		t.symlink(instance, "/var/lib/cloud/instance"),
		t.writeFile("/run/cloud-init/result.json", result, 0o644),
		t.appendFile("/var/log/cloud-init.log", fmt.Appendf(nil, "%s util.py[DEBUG]: instance-id %s, hostname %s\n", r.stamp(), c.VMID, c.HostName), 0o640),
		t.appendFile("/var/log/cloud-init-output.log", fmt.Appendf(nil, "Cloud-init finished at %s. Datasource DataSourceAzure\n", r.stamp()), 0o640),
	)
}

// adminUser makes the administrator's account, with the scale set's keys.
func (r *running) adminUser() error {
	t, c := r.tree, r.computer
	if c.AdminUsername == "" || c.AdminUsername != path.Base(c.AdminUsername) {
		return nil
	}
	home := "/home/" + c.AdminUsername
	passwd, err := t.readTrimmed("/etc/passwd")
	if err != nil {
		return err
	}
	if !strings.Contains("\n"+passwd, "\n"+c.AdminUsername+":") {
		line := c.AdminUsername + ":x:1000:1000::" + home + ":/bin/bash\n"
		if err := t.appendFile("/etc/passwd", []byte(line), 0o644); err != nil {
			return err
		}
	}
	return t.writeFile(home+"/.ssh/authorized_keys", []byte(strings.Join(append(c.SSHKeys, ""), "\n")), 0o600)
}

// networkFiles writes what the network leaves on the disk.
func (r *running) networkFiles() error {
	mac := macAddress(r.computer.VMID)
	netplan := "network:\n  version: 2\n  ethernets:\n    eth0:\n      dhcp4: true\n      match:\n        macaddress: \"" + mac.String() + "\"\n      set-name: eth0\n"
	lease := "lease {\n  interface \"eth0\";\n  fixed-address " + r.hostIP() + ";\n}\n"
	seed := make([]byte, 32)
	if _, err := rand.Read(seed); err != nil {
		return err
	}
	return errors.Join(
		r.tree.writeFile("/etc/netplan/50-cloud-init.yaml", []byte(netplan), 0o600),
		r.tree.writeFile("/var/lib/dhcp/dhclient.eth0.leases", []byte(lease), 0o644),
		r.tree.writeFile("/var/lib/systemd/random-seed", seed, 0o600),
	)
}

func macAddress(vmID string) net.HardwareAddr {
	digest := sha256.Sum256([]byte(vmID))
	return net.HardwareAddr{0x00, 0x0d, 0x3a, digest[0], digest[1], digest[2]}
}

// azureJSON is the cloud provider's configuration.
const azureJSON = "/etc/kubernetes/azure.json"

// prepareNode is the part of a pool's customData or extensions that makes a
// kubelet able to join. We run no commands of it, so its effect is done here.
// What customData wrote itself is left alone.
func (r *running) prepareNode() error {
	t := r.tree
	kubeletConfig := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"
	if err := t.writeFile("/var/lib/kubelet/config.yaml", []byte(kubeletConfig), 0o644); err != nil {
		return err
	}
	if len(r.substrate.config.AzureJSON) > 0 && !t.exists(azureJSON) {
		if err := t.writeFile(azureJSON, r.substrate.config.AzureJSON, 0o600); err != nil {
			return err
		}
	}
	if len(r.substrate.bootstrap) == 0 || slices.ContainsFunc(slices.Concat(kubeconfigs, bootstrapKubeconfigs), t.exists) {
		return nil
	}
	return t.writeFile(bootstrapKubeconfigs[0], r.substrate.bootstrap, 0o600)
}

// validate says what c lacks to be booted.
func validate(c azsim.Computer) error {
	switch {
	case c.ID == "":
		return errors.New("a computer needs an id")
	case c.OSDisk == "":
		return fmt.Errorf("%s has no OS disk", c.ID)
	case c.Provision && (c.HostName == "" || c.VMID == ""):
		return fmt.Errorf("%s cannot be provisioned without host name and VM id", c.ID)
	}
	return nil
}

package join

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ortet/ortet/internal/wire"
)

func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"servers":["https://10.0.0.4:8443"],"caHash":"sha256:` + strings.Repeat("0a", 32) + `","distribution":"k3s","callbackPort":9440,"nodeLabels":{"a/b":"c"},"nodeTaints":["a=b:NoSchedule"],"registries":"mirrors: {}","kubelet":{"kubeconfig":"/a"}}`))
	f.Add([]byte(`{"servers":["https://[::1]"],"caHash":"sha256:,","distribution":"kubelet"} {}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Settings
		if s.ParseSettings(text) != nil {
			return
		}
		s, err := s.Complete()
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var same Settings
		if err := same.ParseSettings(again); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if same, err = same.Complete(); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		checkWords(t, same, "node", "azure://"+ourID)
		if _, err := NewClient(same, Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

// checkWords holds what is written to what it may be: one line of words for systemd,
// and for k3s YAML of these keys alone.
func checkWords(t *testing.T, s Settings, node, id string) {
	t.Helper()
	line := strings.TrimPrefix(string(kubeletArguments(s, node, id, false)), "# Written by ortet-node join at each start.\n")
	if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\"'\\$%`\r\x00") {
		t.Fatalf("not one line of plain words: %q", line)
	}
	for _, word := range strings.Fields(strings.TrimPrefix(line, "ORTET_KUBELET_ARGS=")) {
		flag, _, _ := strings.Cut(word, "=")
		switch flag {
		case "--hostname-override", "--provider-id", "--node-labels", "--register-with-taints":
		default:
			t.Fatalf("a word %q in %q", word, line)
		}
	}
	var config map[string]any
	text := rancherConfig(s, wire.Join{Server: apiServer, NodeName: node, ProviderID: id})
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for key := range config {
		switch key {
		case "server", "token-file", "node-name", "kubelet-arg+", "node-label+", "node-taint+":
		default:
			t.Fatalf("a key %q in\n%s", key, text)
		}
	}
	if config["server"] != apiServer || config["node-name"] != node || len(config["kubelet-arg+"].([]any)) != 1 {
		t.Fatalf("%s", text)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"resourceId":"` + ourID + `","vmId":"` + ourVM + `","name":"pool1_10","osProfile":{"computerName":"pool100000A"}}`))
	f.Add([]byte(`{"signature":"AAAA"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parseMachine(text); err == nil {
			if strings.ContainsAny(m.ResourceID+m.HostName+m.VMID, " \t\r\n\"'\\$%`") || len(m.VMID) != 36 {
				t.Fatalf("%+v", m)
			}
			checkWords(t, Settings{}, "node", "azure://"+m.ResourceID)
		}
		if d, err := parseAttested(text); err == nil && (d == "" || len(d) > maxDocument || strings.ContainsAny(d, " \r\n")) {
			t.Fatalf("%q", d)
		}
	})
}

func FuzzGrant(f *testing.F) {
	good, err := json.Marshal(wire.Join{NodeName: ourName, ProviderID: "azure://" + ourID, VMID: ourVM, Server: apiServer, Token: goodToken, CA: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Expires: time.Unix(1, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	f.Add([]byte(strings.ReplaceAll(string(good), goodToken, pinOfCA+"::"+goodToken)), true)
	f.Add([]byte(`{"reason":"Busy","message":"x","retryAfterSeconds":3}`), true)
	f.Fuzz(func(t *testing.T, text []byte, k3s bool) {
		distribution := wire.Kubelet
		if k3s {
			distribution = wire.K3s
		}
		j, err := wire.ParseAnswer[wire.Join](text)
		if err != nil || checkJoin(j, Machine{VMID: ourVM}, distribution) != nil {
			return
		}
		s := Settings{Distribution: distribution, Kubelet: KubeletPaths{bootstrapKubeconfig, kubeletKubeconfig, clientCA}}
		files := configuration(s, j, false)
		for _, file := range files {
			switch file.path {
			case bootstrapKubeconfig, KubeletArguments, RancherToken, "/etc/rancher/k3s/config.yaml.d/50-ortet.yaml":
			default:
				t.Fatalf("a file %s", file.path)
			}
		}
		line := string(kubeletArguments(s, j.NodeName, j.ProviderID, false))
		if strings.Count(line, "\n") != 2 || len(strings.Fields(line[strings.IndexByte(line, '\n'):])) != 2 {
			t.Fatalf("%q", line)
		}
		var config map[string]any
		if err := yaml.Unmarshal(rancherConfig(s, j), &config); err != nil || len(config) != 4 || config["server"] != j.Server || config["node-name"] != j.NodeName {
			t.Fatalf("%v: %s", err, rancherConfig(s, j))
		}
		if k3s {
			return
		}
		var kubeconfig map[string]any
		if err := yaml.Unmarshal(files[1].text, &kubeconfig); err != nil {
			t.Fatalf("%v: %s", err, files[1].text)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"state":"joined","vmId":"`+ourVM+`","nodeName":"n","providerId":"azure://x","caPin":"`+pinOfCA+`"}`), []byte("36 35 98:0 / /a\\040b rw - ext4 /dev/sda1 rw\n"))
	f.Add([]byte("{"), []byte("EnvironmentFile=-/etc/default/kubelet\nExecStart=kubelet --cert-dir=/opt/../pki --cert-dir \\\n '/a'\n"))
	f.Fuzz(func(t *testing.T, text, mounts []byte) {
		var r Record
		if json.Unmarshal(text, &r) == nil && r.wellFormed() {
			if r.NodeName != "" && r.ProviderID != "" {
				checkWords(t, Settings{}, r.NodeName, r.ProviderID)
			}
			judge(&r, &login{node: r.NodeName}, "", &Machine{}, time.Unix(1, 0))
			for _, file := range again(Settings{Distribution: wire.K3s}, r, false) {
				if !pinnedToken.MatchString(strings.TrimSuffix(string(file.text), "\n")) {
					t.Fatalf("%q", file.text)
				}
			}
		}
		parseMounts(mounts)
		dirs, files := certDirsIn(mounts)
		for _, p := range append(dirs, files...) {
			if !path.IsAbs(p) || path.Clean(p) != p {
				t.Fatalf("%q", p)
			}
		}
	})
}

package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// What is left of a line is compared as a whole: the program stays, and what the form of
// an argument shows to be no password.
func TestArgumentsOfCommands(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"small letters and digits", "+ mysql -u root hunter2hunter2xy", "+ mysql -u root [redacted]"},
		{"three kinds", "+ join.sh 10.0.0.1 S3cretPassw0rdXy", "+ join.sh 10.0.0.1 [redacted]"},
		{"letters alone", "+ join.sh 10.0.0.1 qwfpgjluyarstdhn", "+ join.sh 10.0.0.1 [redacted]"},
		{"capitals and small letters", "+ join.sh qWfpGjluYarsTdhN", "+ join.sh [redacted]"},
		{"signs", "+ join.sh 'Rk!9v@x-2$pWmz~T'", "+ join.sh '[redacted]'"},
		{"a phrase", "+ join.sh amber-kite-rolls", "+ join.sh [redacted]"},
		{"a long number", "+ join.sh 4821936570184726", "+ join.sh [redacted]"},
		{"in a nested shell", "++ join.sh q7Rw2Lx9Zt4Kb8Vn", "++ join.sh [redacted]"},
		{"behind a log's prefix", "Nov 20 07:01:02 n cloud-init[812]: + join.sh q7Rw2Lx9Zt4Kb8Vn", "Nov 20 07:01:02 n cloud-init[812]: + join.sh [redacted]"},
		{"user:password", "+ join.sh admin:q7rw2lx9zt4kb8vn", "+ join.sh admin:[redacted]"},
		{"a flag's value", "+ join.sh --with=q7rw2lx9zt4kb8vn", "+ join.sh --with=[redacted]"},
		{"an assignment", "+ X=q7rw2lx9zt4kb8vn join.sh", "+ X=[redacted] join.sh"},
		{"base64", "+ join.sh cTdydzJseDl6dA==", "+ join.sh [redacted]"},
		{"in the middle", "+ join.sh q7rw2lx9zt4kb8vn /etc/x now", "+ join.sh [redacted] /etc/x now"},
		{"a trace in JSON", `{"stderr":"+ set -e\n+ join.sh q7rw2lx9zt4kb8vn\n"}`, `{"stderr":"+ set -e\n+ join.sh [redacted]"}`},
		{"traces in JSON", `{"stderr":"+ join.sh q7rw2lx9zt4kb8vn\n++ JoinClusterNow2 x\n+ join.sh q7rw2lx9zt4kb8vn"}`, `{"stderr":"+ join.sh [redacted]\n++ JoinClusterNow2 x\n+ join.sh [redacted]"}`},
		{"commandToExecute", `{"commandToExecute":"bash join.sh 10.0.0.1 q7rw2lx9zt4kb8vn"}`, `{"commandToExecute":"bash join.sh 10.0.0.1 [redacted]"}`},
		{"commandToExecute in JSON", `settings: "{\"commandToExecute\": \"bash -c \\\"join.sh q7rw2lx9zt4kb8vn\\\"\", \"timestampOfUpdate\": 1}"`, `settings: "{\"commandToExecute\": \"bash -c \\\"join.sh [redacted]"\", \"timestampOfUpdate\": 1}"`},
		{"two commandToExecute", `{"settings":{"commandToExecute":"bash a.sh"},"protectedSettings":{"commandToExecute":"bash b.sh bob q7rw2lx9zt4kb8vn"}}`, `{"settings":{"commandToExecute":"bash a.sh"},"protectedSettings":{"commandToExecute":"bash b.sh bob [redacted]"}}`},
		{"behind cloud-init's label", "Stderr: + adduser bob q7rw2lx9zt4kb8vn", "Stderr: + adduser bob [redacted]"},
		{"behind an agent's label", "[stderr] + adduser bob q7rw2lx9zt4kb8vn", "[stderr] + adduser bob [redacted]"},
		{"behind a label and a quote", "stderr: '+ adduser bob q7rw2lx9zt4kb8vn'", "stderr: '+ adduser bob [redacted]'"},
		{"sudo", "sudo[9]: u : USER=root ; COMMAND=/usr/bin/join q7rw2lx9zt4kb8vn", "sudo[9]: u : USER=root ; COMMAND=/usr/bin/join [redacted]"},
	} {
		shown := Text(c.line)
		if strings.Contains(shown, "rw2lx9") || c.want != "" && shown != c.want {
			t.Errorf("%s: %q is shown as %q, want %q", c.name, c.line, shown, c.want)
		}
		if again := Text(shown); again != shown {
			t.Errorf("%s: %q is shown as %q the second time", c.name, shown, again)
		}
	}
}

// Passwords of 16 bytes, of whatever alphabet, are not published as arguments, nor in an
// OpenVPN profile.
func TestPasswordsAmongArguments(t *testing.T) {
	const lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	r := rand.New(rand.NewPCG(29, 16))
	for _, alphabet := range []string{lower, digits, lower + digits, lower + strings.ToUpper(lower), lower + strings.ToUpper(lower) + digits, lower + strings.ToUpper(lower) + digits + "!%+,=@#^*~?.:/_-"} {
		for range 300 {
			password := make([]byte, 16)
			for i := range password {
				password[i] = alphabet[r.IntN(len(alphabet))]
			}
			for _, line := range []string{
				"+ mysql -u root %", "Nov 20 07:01:02 n cloud-init[812]: ++ join.sh 10.0.0.1 '%'", `{"commandToExecute":"./join.sh 10.0.0.1 % eth0"}`,
				`"protectedSettings": "{\"commandToExecute\":\"./join.sh % 10.0.0.1\"}"`, "x\n<auth-user-pass>\noperator\n%\n</auth-user-pass>",
			} {
				shown := strings.Join(Lines(strings.Split(strings.ReplaceAll(line, "%", string(password)), "\n")), "\n")
				for i := range len(password) - 7 {
					if part := string(password[i : i+8]); strings.Contains(shown, part) {
						t.Fatalf("%q of %q is left in %q", part, password, shown)
					}
				}
			}
		}
	}
}

// What a command did stays, where it says why a node does not come up.
func TestArgumentsThatStay(t *testing.T) {
	for _, s := range []string{
		"+ kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml --ignore-preflight-errors=all --v=5",
		"+ systemctl enable --now containerd kubelet systemd-networkd-wait-online.service",
		"+ apt-get install -y nfs-common kubelet=1.33.2-1.1",
		"+ curl -fsSLO https://dl.k8s.io/release/v1.34.2/bin/linux/amd64/kubelet",
		"+ nc -vz aks-dns-1a2b3c4d.hcp.westeurope.azmk8s.io 443",
		"+ systemctlEnableAndStart kubelet 30",
		"+ sysctl -w net.ipv4.ip_forward=1 fs.inotify.max_user_watches=1048576",
		"+ for i in $(seq 1 100)",
		"+ until test -f /run/site-ready; do sleep 5; done",
		"+ '[' 1 -ne 0 ']'",
		"+ NODE_INDEX=3",
		"+ az vmss show --ids 5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f",
		"+ kubeadm join 10.0.0.4:6443 --discovery-token-ca-cert-hash sha256:" + hex32 + hex32,
		`{"commandToExecute":"bash /opt/azure/containers/provision_start.sh","fileUris":["https://a.blob.core.windows.net/c/provision_start.sh"]}`,
		"+ ctr -n k8s.io image pull mcr.microsoft.com/oss/kubernetes/pause@sha256:" + hex32 + hex32,
		"+ crictl pull mcr.microsoft.com/oss/kubernetes/kube-proxy",
		"+ exit ERR_KUBELET_START_FAIL",
		"C++ compiler not found in q7rw2lx9zt4kb8",
	} {
		if shown := Text(s); shown != s {
			t.Errorf("%q is shown as %q", s, shown)
		}
	}
}

// Of an OpenVPN profile the blocks with secrets are hidden, and what is around stays.
func TestInlineBlocksOfOpenVPN(t *testing.T) {
	const secret = "hunter2hunter2xy"
	for _, prefix := range []string{"", "  ", "Nov 20 07:01:02 n cloud-init[812]: "} {
		for _, name := range []string{"auth-user-pass", "http-proxy-user-pass", "key", "tls-auth", "tls-crypt", "tls-crypt-v2", "secret", "pkcs12"} {
			lines := []string{"remote vpn.example.org 1194", "<" + name + ">", "operator", secret, "</" + name + ">", "verb 3"}
			for i := range lines {
				lines[i] = prefix + lines[i]
			}
			for what, part := range map[string][]string{"whole": lines, "without its end": lines[:4], "without its beginning": lines[2:]} {
				if what != "whole" && !strings.HasSuffix(name, "user-pass") {
					continue
				}
				shown := Lines(part)
				if all := strings.Join(shown, "\n"); strings.Contains(all, secret) {
					t.Errorf("<%s>, %s: %q", name, what, all)
				}
				if what != "without its beginning" && (shown[0] != part[0] || shown[1] != part[1]) {
					t.Errorf("<%s>, %s: what comes before is %q", name, what, shown[:2])
				}
				if last := len(part) - 1; what != "without its end" && (shown[last] != part[last] || shown[last-1] != part[last-1]) {
					t.Errorf("<%s>, %s: what comes after is %q", name, what, shown[last-1:])
				}
			}
			if shown := Text(`{"profile":"verb 3\n<` + name + `>\noperator\n` + secret + `\n</` + name + `>\nnobind"}`); strings.Contains(shown, secret) || !strings.Contains(shown, "nobind") {
				t.Errorf("<%s> in JSON: %q", name, shown)
			}
		}
	}
	for _, lines := range [][]string{
		{"usage: put <key>", "no endpoint"},
		{"<key>", "after"},
	} {
		if shown := Lines(lines); strings.Join(shown, "\n") != strings.Join(lines, "\n") {
			t.Errorf("%q became %q", lines, shown)
		}
	}
}

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestAdmissionUsage(t *testing.T) {
	const pool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p"
	for args, says := range map[string]string{
		"":                     "--pool is required: the ARM id of a scale set whose machines are to join\n--tls-san is required", // all at once
		"--pool x":             "--tls-san is required",
		"--pool x --tls-san a": "is not the ARM id of a scale set",
		"--tls-san a --pool " + pool + " --keep-capacity p":                       "is not the ARM id of a scale set",
		"--tls-san a --pool " + pool + " --token-ttl 1s":                          "--token-ttl 1s: want 1m to 24h",
		"--tls-san a --pool " + pool + " --callback-timeout 1m":                   "--callback-timeout 1m: want 100ms to 20s",
		"--tls-san a --pool " + pool + " --reap-interval 1s":                      "--reap-interval 1s: want 5s to 24h",
		"--tls-san a --pool " + pool + " --api-server http://10.0.0.1":            "want https://HOST:PORT",
		"--tls-san a --pool " + pool + " --k3s-server https://10.0.0.1:6443/path": "want https://HOST:PORT",
		"--tls-san a --pool " + pool + " --attestation-domain azure.com":          "--attestation-domain",
		"--tls-san a --pool " + pool + " --callback-port 340,x":                   `--callback-port "340,x"`,
		"--tls-san a --pool " + pool + " --rate 0":                                "limits below 1",
	} {
		code, _, stderr := run(t, append([]string{"admission"}, strings.Fields(args)...)...)
		if code != ExitUsage || !strings.Contains(stderr, says) || !strings.HasSuffix(stderr, "See 'ortet admission --help'.\n") {
			t.Errorf("%q: code %d, %s, want %q", args, code, stderr, says)
		}
	}
}

func TestCallbackPorts(t *testing.T) {
	for text, has := range map[string][]int{"340": {340}, "340,9440": {340, 9440}, "1024-1026, 340": {340, 1024, 1026}} {
		ports, err := admissionFlags{callbackPort: text}.callbackPorts()
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{340, 1024, 1026, 9440, 30000} {
			if ports.Has(port) != slices.Contains(has, port) {
				t.Errorf("%q: port %d is called back: %v", text, port, ports.Has(port))
			}
		}
	}
	for _, wrong := range []string{"", ",", "0", "340,", "9-8", "70000", "-1"} {
		if ports, err := (admissionFlags{callbackPort: wrong}).callbackPorts(); err == nil {
			t.Errorf("%q: %v", wrong, ports)
		}
	}
}

package nodeconfig

import (
	"reflect"
	"testing"
)

func TestChangesNameWhatRestarts(t *testing.T) {
	yes := true
	old := Config{
		Files: []File{
			{Path: "/etc/motd", Content: "hello"},
			{Path: "/etc/same", Mode: "0644", Content: "x"},
			{Path: "/etc/gone", Content: "x", Restart: []string{"b.service", "a.service"}},
		},
		Units: []Unit{
			{Name: "backup.timer", Content: "[Timer]\n", Started: &yes},
			{Name: "cron.service", DropIns: []DropIn{{"10-a.conf", "a"}}},
		},
		Sysctls:         map[string]string{"net.core.somaxconn": "1"},
		Kubelet:         map[string]any{"maxPods": float64(50), "evictionHard": map[string]any{"memory.available": "1Gi"}},
		RegistryMirrors: []RegistryMirror{{"docker.io", []string{"https://a.example"}}},
	}
	next := Config{
		Files: []File{
			{Path: "/etc/same", Owner: "root:root", Content: "x"},
			{Path: "/etc/motd", Content: "hello", Mode: "0600", Restart: []string{"motd.service"}},
		},
		Units: []Unit{
			{Name: "backup.timer", Content: "[Timer]\nOnCalendar=daily\n", Started: &yes, DropIns: []DropIn{{"10-b.conf", "b"}}},
		},
		Sysctls:         map[string]string{"net.core.somaxconn": "2"},
		Kubelet:         map[string]any{"maxPods": float64(60), "evictionHard": map[string]any{"memory.available": "1Gi"}},
		RegistryMirrors: []RegistryMirror{{"docker.io", []string{"https://b.example"}}},
		CACertificates:  []CACertificate{{"corp", "pem"}},
	}
	want := []Change{
		{"CA certificate", "corp", Added, []string{"containerd", "kubelet"}},
		{"drop-in", "backup.timer.d/10-b.conf", Added, []string{"backup.timer"}},
		{"drop-in", "cron.service.d/10-a.conf", Removed, nil},
		{"file", "/etc/gone", Removed, []string{"a.service", "b.service"}},
		{"file", "/etc/motd", Changed, []string{"motd.service"}},
		{"kubelet", "maxPods", Changed, []string{"kubelet"}},
		{"registry mirror", "docker.io", Changed, nil},
		{"sysctl", "net.core.somaxconn", Changed, nil},
		{"unit", "backup.timer", Changed, []string{"backup.timer"}},
	}
	if got := Changes(old, next); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := Changes(next, next); len(got) != 0 {
		t.Errorf("the same configuration: %+v", got)
	}
	if got := Changes(Config{}, old); len(got) != 9 {
		t.Errorf("first configuration: %+v", got)
	}
}

func TestEnabledAloneRestartsNothing(t *testing.T) {
	yes, no := true, false
	unit := func(enabled *bool) Config {
		return Config{Units: []Unit{{Name: "x.service", Content: "[Service]\n", Enabled: enabled, Started: &yes}}}
	}
	for _, enabled := range []*bool{&no, nil} {
		all := Changes(unit(&yes), unit(enabled))
		if len(all) != 1 || all[0].What != Changed || all[0].Name != "x.service" || len(all[0].Restarts) > 0 {
			t.Errorf("%+v", all)
		}
	}
}

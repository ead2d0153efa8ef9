package azsim

import "testing"

func TestComputerName(t *testing.T) {
	for _, c := range []struct {
		prefix string
		id     int
		want   string
	}{
		{"pool1", 0, "pool1000000"},
		{"pool1", 9, "pool1000009"},
		{"pool1", 10, "pool100000A"},
		{"agents", 36, "agents000010"},
		{"k8s-agentpool2-24293783-vmss", 969, "k8s-agentpool2-24293783-vmss0000QX"},
	} {
		if got := computerName(c.prefix, c.id); got != c.want {
			t.Errorf("computerName(%q, %d) = %q, want %q", c.prefix, c.id, got, c.want)
		}
	}
}

func TestParseInstanceID(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "12": 12} {
		if got, ok := parseInstanceID(in); !ok || got != want {
			t.Errorf("parseInstanceID(%q) = %d, %v, want %d", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "-1", "+1", "01", "a", "1.0", " 1"} {
		if got, ok := parseInstanceID(in); ok {
			t.Errorf("parseInstanceID(%q) = %d, want a refusal", in, got)
		}
	}
}

package kube

import (
	"strings"
	"testing"
)

func TestObjectName(t *testing.T) {
	const pool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/Pool_1"
	name := JournalName(pool)
	if !strings.HasPrefix(name, "ortet-journal-pool-1-") {
		t.Errorf("%q is not for people", name)
	}
	if JournalName(strings.ToUpper(pool)) != name {
		t.Error("letter case tells pools apart")
	}
	for _, other := range []string{pool + "2", strings.Replace(pool, "/g/", "/h/", 1), strings.Replace(pool, "_1", "-1", 1)} {
		if JournalName(other) == name {
			t.Errorf("%s has the same name", other)
		}
	}
	for _, key := range []string{pool, "", "///", strings.Repeat("x", 500), "/a/" + strings.Repeat("-", 60), "größe", "\x00"} {
		name := JournalName(key)
		if len(name) > 63 || strings.ToLower(name) != name || strings.ContainsAny(name, "/_. \x00") || strings.HasSuffix(name, "-") {
			t.Errorf("%q of %q is no object name", name, key)
		}
	}
}

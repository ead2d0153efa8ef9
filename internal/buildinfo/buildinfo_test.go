package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	if got := Version("v1.2.3"); got != "v1.2.3" {
		t.Errorf("linked as v1.2.3, it reports %s", got)
	}
	if got := Version(""); got != "dev" {
		t.Errorf("a test reports %s, want dev", got)
	}
	for module, want := range map[string]string{"": "dev", "(devel)": "dev", "v0.1.0": "v0.1.0", "v0.1.1-0.20261128034800-e3f3f8170000": "v0.1.1-0.20261128034800-e3f3f8170000"} {
		if got := ofModule(&debug.BuildInfo{Main: debug.Module{Version: module}}); got != want {
			t.Errorf("module version %q: it reports %s, want %s", module, got, want)
		}
	}
	if got := ofModule(nil); got != "dev" {
		t.Errorf("without build information it reports %s, want dev", got)
	}
}

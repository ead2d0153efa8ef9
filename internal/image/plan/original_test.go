package plan

import (
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// What is known of protected settings holds while the extension is the same.
func TestOriginalExtensions(t *testing.T) {
	e := fleet.Extension{Name: "cse", Publisher: "P", Type: "T", Settings: fleet.NewSecret(`{"a":1}`)}
	all := OriginalExtensions([]fleet.Extension{e, {Name: "plain"}, {Name: "kv", KeyVault: &fleet.KeyVaultSecret{}}}, nil)
	if all[0].PublicSHA256 != "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862" || all[0].ProtectedSHA256 != "" ||
		all[0].Handler() != "P.T" {
		t.Errorf("%+v", all[0])
	}
	if all[1].PublicSHA256 != NoSettings || all[1].ProtectedSHA256 != "" || all[2].ProtectedSHA256 != NoSettings {
		t.Errorf("%+v", all[1:])
	}
	all[0].ProtectedSHA256 = "known"
	other := e
	other.Settings = fleet.NewSecret(`{"a":2}`)
	if same := OriginalExtensions([]fleet.Extension{e}, all); same[0].ProtectedSHA256 != "known" {
		t.Errorf("%+v", same)
	}
	if changed := OriginalExtensions([]fleet.Extension{other}, all); changed[0].ProtectedSHA256 != "" {
		t.Errorf("%+v", changed)
	}
	all[0].Deleted = true
	if kept := OriginalExtensions([]fleet.Extension{{Name: "Plain"}}, all); len(kept) != 2 || kept[1].Name != "cse" || !kept[1].Deleted {
		t.Errorf("of one that a capture deleted, and one that its owners did: %+v", kept)
	}
	if back := OriginalExtensions([]fleet.Extension{{Name: "CSE"}}, all); len(back) != 1 || back[0].Deleted {
		t.Errorf("%+v", back)
	}
}

// TestNoopSHA256 computes the constant.
func TestNoopSHA256(t *testing.T) {
	if got := SHA256(NoopCustomData); got != NoopSHA256 {
		t.Errorf("%s, want %s", NoopSHA256, got)
	}
}

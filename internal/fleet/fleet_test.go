package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestParseProviderID(t *testing.T) {
	const id = "/subscriptions/s-1/resourceGroups/my_group/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
	for name, c := range map[string]struct{ in, want, says string }{
		"as Azure spells it":  {"azure://" + id, id, ""},
		"in lower case":       {"azure://" + strings.ToLower(id), strings.ToLower(id), ""},
		"none":                {"", "", "no Azure cloud provider"},
		"another cloud":       {"aws:///eu-1/i-1", "", "not an Azure node"},
		"a VM of its own":     {"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm", "", "of its own"},
		"a scale set":         {"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p", "", "not the id"},
		"a path out":          {"azure:///subscriptions/s/resourceGroups/../providers/Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines/1", "", "not a valid name"},
		"a query":             {"azure://" + id + "?x=y", "", "not a valid name"},
		"something in front":  {"azure://host" + id, "", "not the id"},
		"another provider":    {"azure://" + strings.Replace(id, "Microsoft.Compute", "Microsoft.Evil", 1), "", "not the id"},
		"longer than any":     {"azure://" + id + strings.Repeat("x", maxProviderID), "", "longer"},
		"an empty group":      {"azure://" + strings.Replace(id, "my_group", "", 1), "", "not a valid name"},
		"percent in the name": {"azure://" + strings.Replace(id, "my_group", "a%2fb", 1), "", "not a valid name"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseProviderID(c.in)
			if got != ResourceID(c.want) || (err == nil) != (c.says == "") {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || !Is(err, KindInvalid)) {
				t.Errorf("says %q of kind %q, want it to say %q", err, KindOf(err), c.says)
			}
		})
	}
}

func FuzzParseProviderID(f *testing.F) {
	f.Add("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines/0")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseProviderID(s)
		if err != nil {
			return
		}
		if "azure://"+string(id) != s {
			t.Errorf("%q became %q", s, id)
		}
		if id.Segment("virtualMachineScaleSets") == "" || id.Name() == "" || strings.ContainsAny(string(id), "?#%") || strings.Contains(string(id), "/../") {
			t.Errorf("accepted %q", s)
		}
	})
}

func TestResourceID(t *testing.T) {
	v := ResourceID("/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/galleries/gal/images/def/versions/2026.11.21")
	if v.Name() != "2026.11.21" || v.Parent().Name() != "def" || v.Segment("GALLERIES") != "gal" {
		t.Errorf("name %q, parent %q, gallery %q", v.Name(), v.Parent(), v.Segment("galleries"))
	}
	if got := v.In("snapshots", "x"); got != "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/snapshots/x" {
		t.Errorf("In gives %q", got)
	}
	if !v.Equal(ResourceID(strings.ToUpper(string(v)))) || v.Equal(v.Parent()) {
		t.Error("letter case decides, or does too little")
	}
	if got := v.Parent().Child("versions", "1.2.3"); got.Parent() != v.Parent() {
		t.Errorf("Child gives %q", got)
	}
	if ResourceID("x").Parent() != "" || ResourceID("").Name() != "" {
		t.Error("short ids are not survived")
	}
}

func TestKindOfLooksThroughWrapping(t *testing.T) {
	inner := &Error{Op: "create snapshot", Resource: "s", Kind: KindConflict, Err: errors.New("busy"), Remedy: "wait"}
	for _, err := range []error{inner, fmt.Errorf("more: %w", inner), &Error{Op: "capture", Err: fmt.Errorf("x: %w", inner)}} {
		if KindOf(err) != KindConflict || !Is(err, KindConflict) {
			t.Errorf("%v is of kind %q", err, KindOf(err))
		}
	}
	if outer := (&Error{Op: "o", Kind: KindDenied, Err: inner}); !Is(outer, KindDenied) {
		t.Error("the outermost kind does not count")
	}
	if KindOf(errors.New("plain")) != KindUnknown || Is(nil, KindUnknown) {
		t.Error("a plain error has a kind, or nil is an error")
	}
	if got := inner.Error(); got != "create snapshot (s): busy; wait" {
		t.Errorf("reads %q", got)
	}
}

func TestSecretIsNotShown(t *testing.T) {
	const value = "hunter2"
	s := NewSecret(value)
	change := PatchModel{Pool: "p", CustomData: &s}
	text, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "secret", s, "change", change)
	for how, shown := range map[string]string{
		"JSON": string(text), "log": log.String(), "%v": fmt.Sprintf("%v", s), "%+v": fmt.Sprintf("%+v", change), "%#v": fmt.Sprintf("%#v", s),
		"%s": fmt.Sprintf("%s", s), "%q": fmt.Sprintf("%q", s), "%x": fmt.Sprintf("%x", s), "String": s.String(),
	} {
		if strings.Contains(shown, value) || strings.Contains(shown, fmt.Sprintf("%x", value)) {
			t.Errorf("%s shows %q", how, shown)
		}
	}
	if s.Reveal() != value {
		t.Error("Reveal gives another value")
	}
}

// FuzzResourceID asserts that ids from anywhere can be taken apart, and that
// what is made of a pool's id stays in its group.
func FuzzResourceID(f *testing.F) {
	f.Add("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", "x")
	f.Add("//", "")
	f.Add("resourceGroups", "/")
	f.Add("/subscriptions/a/subscriptions/b/resourceGroups/", "..")
	f.Fuzz(func(t *testing.T, s, name string) {
		id := ResourceID(s)
		if same := ResourceID(strings.Clone(s)); !id.Equal(same) || isASCII(s) && !id.Equal(ResourceID(strings.ToUpper(s))) {
			t.Error("it is not itself")
		}
		if strings.Contains(id.Name(), "/") || len(id.Parent()) > len(id) {
			t.Errorf("name %q, parent %q", id.Name(), id.Parent())
		}
		if child := id.Child("kind", name); !strings.Contains(name, "/") && (child.Name() != name || s != "" && child.Parent() != id) {
			t.Errorf("child %q has the name %q and the parent %q", child, child.Name(), child.Parent())
		}
		if in := id.In("disks", name); !strings.HasPrefix(string(in), string(id.Group())+"/") || in.Group() != id.Group() {
			t.Errorf("%q is not in %q", in, id.Group())
		}
		if ValidName(name) && strings.ContainsAny(name, "/?#%\\ \t\n'\"") || (name == "." || name == "..") && ValidName(name) {
			t.Errorf("%q is taken for a name", name)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

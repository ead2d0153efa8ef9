package bootstrap

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// smbios is a table with a system of this id, as it stands there, and a chassis of
// this tag.
func smbios(t testing.TB, id, tag string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(kind byte, fields []byte, texts ...string) []byte {
		return append(append([]byte{kind, byte(len(fields) + 4), 0, 0}, fields...), strings.Join(texts, "\x00")+"\x00\x00"...)
	}
	return slices.Concat(
		[]byte{0, 3, 1, 0, 0, 0, 0, 0},
		entry(0, make([]byte, 20), "vendor", "version"),
		entry(1, append(append([]byte{1, 2, 3, 4}, raw...), 6, 0, 0), "Microsoft Corporation", "Virtual Machine", "7.0", "0000-0001"),
		entry(2, make([]byte, 4), ""),
		entry(3, []byte{1, 3, 2, 3, 4, 3, 3, 3, 3}, "Microsoft Corporation", "7.0", "0000-0002", tag),
		entry(127, nil, ""),
		entry(1, make([]byte, 23), "after the end"),
	)
}

func TestSMBIOSVMID(t *testing.T) {
	const id = "cd184545d4215e4b86d67b8bd5a1f6d5"
	azure := smbios(t, id, azureChassis)
	if got := smbiosVMID(azure); got != "454518cd-21d4-4b5e-86d6-7b8bd5a1f6d5" {
		t.Errorf("%q", got)
	}
	for name, raw := range map[string][]byte{
		"another cloud": smbios(t, id, "1234"), "nothing": nil, "a head alone": azure[:8], "cut off": azure[:90],
		"a length that leads nowhere": append(slices.Clone(azure[:8]), 1, 200, 0, 0), "a length of none": append(slices.Clone(azure[:8]), 1, 0, 0, 0),
	} {
		if got := smbiosVMID(raw); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzSMBIOS(f *testing.F) {
	f.Add(smbios(f, "cd184545d4215e4b86d67b8bd5a1f6d5", azureChassis))
	f.Add([]byte{0, 3, 1, 0, 0, 0, 0, 0, 3, 9, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if id := smbiosVMID(raw); id != "" && len(id) != 36 {
			t.Errorf("%q", id)
		}
	})
}

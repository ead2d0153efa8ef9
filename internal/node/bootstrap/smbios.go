package bootstrap

import (
	"bytes"
	"encoding/hex"
)

// smbiosVMID is the VM's id by the firmware's tables, as Windows hands them out
// (RawSMBIOSData); "" elsewhere than on Azure, and where they are damaged. Azure's
// firmware of either generation writes the id with its first three parts in little
// endian; what Linux makes of the same bytes depends on the tables' version.
// Source: DMTF DSP0134 (SMBIOS), 6.1 and 7.2 and 7.4.
func smbiosVMID(raw []byte) string {
	const head = 8 // calling method, version (3 bytes), length
	if len(raw) < head {
		return ""
	}
	id, azure := "", false
	for table := raw[head:]; len(table) >= 4; {
		kind, length := table[0], int(table[1])
		if length < 4 || length > len(table) {
			break
		}
		fields, texts := table[:length], table[length:]
		// Texts follow, each with a zero, and a zero at their end; two where there is
		// none.
		end := bytes.Index(texts, []byte{0, 0})
		if end < 0 {
			break
		}
		switch {
		case kind == 1 && length >= 24: // the system
			b := fields[8:24]
			id = vmIDOf(hex.EncodeToString(b), false)
		case kind == 3 && length >= 9: // the chassis
			all := bytes.Split(texts[:end], []byte{0})
			if n := int(fields[8]); n > 0 && n <= len(all) {
				azure = azure || string(bytes.TrimSpace(all[n-1])) == azureChassis
			}
		case kind == 127:
			table = nil
			continue
		}
		table = texts[end+2:]
	}
	if !azure {
		return ""
	}
	return id
}

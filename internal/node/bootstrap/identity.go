package bootstrap

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"time"
)

// whoAmI identifies this node and this boot.
type whoAmI struct {
	vmID, bootID string
}

// Identify returns what identifies this node and this boot, in lower case: its host name,
// Azure's VM id and the kernel's boot id; "" each where unknown. root "" is this system's.
func Identify(root string) (node, vmID, bootID string) {
	me := identifyNode(rooted(root))
	return nodeName(), me.vmID, me.bootID
}

// nodeName is the host name in lower case. It is read when it is reported: in a first boot
// it is set after the waiter starts, and an image's earlier name is no node's.
func nodeName() string {
	name, err := os.Hostname()
	if err != nil || name == "localhost" || strings.HasPrefix(name, "localhost.") {
		return ""
	}
	return strings.ToLower(harmless([]byte(name)))
}

func identifyNode(o Options) whoAmI {
	var w whoAmI
	if id := small(o.under("/proc/sys/kernel/random/boot_id")); len(id) == 36 {
		w.bootID = strings.ToLower(id)
	}
	w.vmID = azureVMID(o)
	if onWindows {
		w.vmID = smbiosVMID(firmwareTable())
	}
	return w
}

// azureChassis is the chassis's asset tag of every Azure VM.
// Source: canonical/cloud-init cloudinit/sources/azure/identity.py.
const azureChassis = "7783-7084-3265-9085-8269-3286-77"

// azureVMID is the VM's id by the metadata service; "" elsewhere than on Azure. The
// firmware of generation 1, without EFI, has its first three parts in the other byte order.
func azureVMID(o Options) string {
	if small(o.under("/sys/class/dmi/id/chassis_asset_tag")) != azureChassis {
		return ""
	}
	_, err := os.Stat(o.under("/sys/firmware/efi"))
	return vmIDOf(small(o.under("/sys/class/dmi/id/product_uuid")), err == nil)
}

// vmIDOf is the VM's id by the firmware; "" where that has none.
func vmIDOf(id string, efi bool) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(id), "-", ""))
	if err != nil || len(raw) != 16 {
		return ""
	}
	if !efi {
		raw = []byte{raw[3], raw[2], raw[1], raw[0], raw[5], raw[4], raw[7], raw[6], raw[8], raw[9], raw[10], raw[11], raw[12], raw[13], raw[14], raw[15]}
	}
	s := hex.EncodeToString(raw)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Uptime is how long the kernel of the node with this root runs, "" for this system's; 0
// where unknown.
func Uptime(root string) time.Duration {
	if up, ok := uptimeOf(small(Under(root, "/proc/uptime"))); ok {
		return up
	}
	return systemUptime()
}

func uptimeOf(text string) (time.Duration, bool) {
	first, _, _ := strings.Cut(text, " ")
	if s, err := strconv.ParseFloat(first, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second)), true
	}
	return 0, false
}

// small reads a file of the kernel's, which has no size.
func small(path string) string {
	f, _, err := OpenRegular(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	var buf [256]byte
	n, err := f.Read(buf[:])
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(buf[:n]))
}

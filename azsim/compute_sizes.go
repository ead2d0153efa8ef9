package azsim

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A vmSize is what matters of a VM size when an image is to boot on it. The
// figures are those that Microsoft.Compute/skus and the size pages give.
type vmSize struct {
	name        string
	family      string
	cores       int32
	memoryMB    int32
	dataDisks   int32
	tempMB      int32  // resource disk; 0 without one
	cacheGB     int32  // SCSI host cache; an ephemeral OS disk may lie there
	generations string // "V1", "V2" or "V1,V2"
	arch        string // "x64" or "Arm64"
	controllers string // "SCSI", "NVMe" or "SCSI,NVMe"
	accelerated bool   // accelerated networking
	spot        bool
	trusted     bool // Trusted Launch
	conf        bool // Confidential VM
}

// ephemeral tells whether the OS disk may lie on the host.
func (s vmSize) ephemeral() bool { return s.tempMB >= 30*1024 || s.cacheGB >= 30 }

func (s vmSize) boots(generation string) bool {
	return slices.Contains(strings.Split(s.generations, ","), generation)
}

func (s vmSize) hasController(c string) bool {
	for _, have := range strings.Split(s.controllers, ",") {
		if strings.EqualFold(have, c) {
			return true
		}
	}
	return false
}

// onlyNVMe tells that the OS disk is on NVMe whatever the model says.
func (s vmSize) onlyNVMe() bool { return s.controllers == "NVMe" }

// vmSizes is the table of sizes that the simulated regions offer.
func vmSizes() []vmSize {
	const both, g1, g2 = "V1,V2", "V1", "V2"
	const scsi, nvme, either = "SCSI", "NVMe", "SCSI,NVMe"
	const x64, arm = "x64", "Arm64"
	const gb = 1024
	return []vmSize{
		{"Standard_A2_v2", "standardAv2Family", 2, 4 * gb, 4, 20 * gb, 0, g1, x64, scsi, false, true, false, false},
		{"Standard_B1ls", "standardBSFamily", 1, 512, 2, 4 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_B1s", "standardBSFamily", 1, 1 * gb, 2, 4 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_B1ms", "standardBSFamily", 1, 2 * gb, 2, 4 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_B2s", "standardBSFamily", 2, 4 * gb, 4, 8 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_B2ms", "standardBSFamily", 2, 8 * gb, 4, 16 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_B4ms", "standardBSFamily", 4, 16 * gb, 8, 32 * gb, 0, both, x64, scsi, false, false, true, false},
		{"Standard_D1_v2", "standardDv2Family", 1, 3584, 4, 50 * gb, 0, g1, x64, scsi, false, true, false, false},
		{"Standard_D2_v2", "standardDv2Family", 2, 7 * gb, 8, 100 * gb, 0, g1, x64, scsi, true, true, false, false},
		{"Standard_DS1_v2", "standardDSv2Family", 1, 3584, 4, 7 * gb, 43, both, x64, scsi, false, true, true, false},
		{"Standard_DS2_v2", "standardDSv2Family", 2, 7 * gb, 8, 14 * gb, 86, both, x64, scsi, true, true, true, false},
		{"Standard_DS3_v2", "standardDSv2Family", 4, 14 * gb, 16, 28 * gb, 172, both, x64, scsi, true, true, true, false},
		{"Standard_D2_v3", "standardDv3Family", 2, 8 * gb, 4, 50 * gb, 0, g1, x64, scsi, true, true, false, false},
		{"Standard_D2s_v3", "standardDSv3Family", 2, 8 * gb, 4, 16 * gb, 50, both, x64, scsi, true, true, true, false},
		{"Standard_D4s_v3", "standardDSv3Family", 4, 16 * gb, 8, 32 * gb, 100, both, x64, scsi, true, true, true, false},
		{"Standard_D8s_v3", "standardDSv3Family", 8, 32 * gb, 16, 64 * gb, 200, both, x64, scsi, true, true, true, false},
		{"Standard_D2s_v4", "standardDSv4Family", 2, 8 * gb, 4, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D4s_v4", "standardDSv4Family", 4, 16 * gb, 8, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D2ds_v4", "standardDDSv4Family", 2, 8 * gb, 4, 75 * gb, 50, both, x64, scsi, true, true, true, false},
		{"Standard_D4ds_v4", "standardDDSv4Family", 4, 16 * gb, 8, 150 * gb, 100, both, x64, scsi, true, true, true, false},
		{"Standard_D2s_v5", "standardDSv5Family", 2, 8 * gb, 4, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D4s_v5", "standardDSv5Family", 4, 16 * gb, 8, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D8s_v5", "standardDSv5Family", 8, 32 * gb, 16, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D16s_v5", "standardDSv5Family", 16, 64 * gb, 32, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D2ds_v5", "standardDDSv5Family", 2, 8 * gb, 4, 75 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D4ds_v5", "standardDDSv5Family", 4, 16 * gb, 8, 150 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D8ds_v5", "standardDDSv5Family", 8, 32 * gb, 16, 300 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D2as_v5", "standardDASv5Family", 2, 8 * gb, 4, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D4as_v5", "standardDASv5Family", 4, 16 * gb, 8, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D2ads_v5", "standardDADSv5Family", 2, 8 * gb, 4, 75 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D4ads_v5", "standardDADSv5Family", 4, 16 * gb, 8, 150 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_D2s_v6", "standardDSv6Family", 2, 8 * gb, 8, 0, 0, g2, x64, nvme, true, true, true, false},
		{"Standard_D4s_v6", "standardDSv6Family", 4, 16 * gb, 12, 0, 0, g2, x64, nvme, true, true, true, false},
		{"Standard_D2ds_v6", "standardDDSv6Family", 2, 8 * gb, 8, 110 * gb, 0, g2, x64, nvme, true, true, true, false},
		{"Standard_D2as_v6", "standardDASv6Family", 2, 8 * gb, 4, 0, 0, g2, x64, either, true, true, true, false},
		{"Standard_D2ads_v6", "standardDADSv6Family", 2, 8 * gb, 4, 110 * gb, 0, g2, x64, either, true, true, true, false},
		{"Standard_D4ads_v6", "standardDADSv6Family", 4, 16 * gb, 8, 220 * gb, 0, g2, x64, either, true, true, true, false},
		{"Standard_D2ps_v5", "standardDPSv5Family", 2, 8 * gb, 4, 0, 0, g2, arm, scsi, true, true, false, false},
		{"Standard_D4ps_v5", "standardDPSv5Family", 4, 16 * gb, 8, 0, 0, g2, arm, scsi, true, true, false, false},
		{"Standard_D2pds_v5", "standardDPDSv5Family", 2, 8 * gb, 4, 75 * gb, 0, g2, arm, scsi, true, true, false, false},
		{"Standard_DC2as_v5", "standardDCASv5Family", 2, 8 * gb, 4, 0, 0, g2, x64, scsi, true, false, true, true},
		{"Standard_E2s_v5", "standardESv5Family", 2, 16 * gb, 4, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_E4s_v5", "standardESv5Family", 4, 32 * gb, 8, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_E8s_v5", "standardESv5Family", 8, 64 * gb, 16, 0, 0, both, x64, scsi, true, true, true, false},
		{"Standard_E2bs_v5", "standardEBSv5Family", 2, 16 * gb, 4, 0, 0, both, x64, either, true, true, true, false},
		{"Standard_F2s_v2", "standardFSv2Family", 2, 4 * gb, 4, 16 * gb, 31, both, x64, scsi, true, true, true, false},
		{"Standard_F4s_v2", "standardFSv2Family", 4, 8 * gb, 8, 32 * gb, 63, both, x64, scsi, true, true, true, false},
		{"Standard_L8s_v3", "standardLSv3Family", 8, 64 * gb, 16, 80 * gb, 0, both, x64, scsi, true, true, true, false},
		{"Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220 * gb, 8, 64 * gb, 256, g2, x64, scsi, true, true, true, false},
	}
}

// sizesByName are all sizes by their lower-case name, and never change.
var sizesByName = sync.OnceValue(func() map[string]vmSize {
	out := map[string]vmSize{}
	for _, s := range vmSizes() {
		out[strings.ToLower(s.name)] = s
	}
	return out
})

// findSize looks a size up in any letter case.
func findSize(name string) (vmSize, bool) {
	s, ok := sizesByName()[strings.ToLower(name)]
	return s, ok
}

// sizeNames lists all sizes, as the refusal of an unknown one does.
func sizeNames() string {
	var names []string
	for _, s := range vmSizes() {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}

// entry is the size as locations/{location}/vmSizes lists it.
func (s vmSize) entry() map[string]any {
	return map[string]any{
		"name":                 s.name,
		"numberOfCores":        s.cores,
		"osDiskSizeInMB":       1047552,
		"resourceDiskSizeInMB": s.tempMB,
		"memoryInMB":           s.memoryMB,
		"maxDataDiskCount":     s.dataDisks,
	}
}

// sku is the size as Microsoft.Compute/skus lists it for one location.
func (s vmSize) sku(location string, zones []string, restricted bool) map[string]any {
	caps := [][2]string{
		{"MaxResourceVolumeMB", strconv.Itoa(int(s.tempMB))},
		{"OSVhdSizeMB", "1047552"},
		{"vCPUs", strconv.Itoa(int(s.cores))},
		{"MemoryGB", strconv.FormatFloat(float64(s.memoryMB)/1024, 'f', -1, 64)},
		{"MaxDataDiskCount", strconv.Itoa(int(s.dataDisks))},
		{"HyperVGenerations", s.generations},
		{"DiskControllerTypes", s.controllers},
		{"CpuArchitectureType", s.arch},
		{"LowPriorityCapable", capBool(s.spot)},
		{"PremiumIO", capBool(strings.Contains(s.generations, "V2"))},
		{"VMDeploymentTypes", "IaaS"},
		{"EphemeralOSDiskSupported", capBool(s.ephemeral())},
		{"AcceleratedNetworkingEnabled", capBool(s.accelerated)},
		{"TrustedLaunchDisabled", capBool(!s.trusted)},
	}
	if s.cacheGB > 0 {
		caps = append(caps, [2]string{"CachedDiskBytes", strconv.FormatInt(int64(s.cacheGB)<<30, 10)})
	}
	if s.conf {
		caps = append(caps, [2]string{"ConfidentialComputingType", "SNP"})
	}
	list := make([]any, 0, len(caps))
	for _, c := range caps {
		list = append(list, map[string]any{"name": c[0], "value": c[1]})
	}
	tier, short, _ := strings.Cut(s.name, "_")
	zoneList := make([]any, 0, len(zones))
	for _, z := range zones {
		zoneList = append(zoneList, z)
	}
	restrictions := []any{}
	if restricted {
		restrictions = append(restrictions, map[string]any{"type": "Location", "values": []any{location},
			"reasonCode": "NotAvailableForSubscription", "restrictionInfo": map[string]any{"locations": []any{location}}})
	}
	return map[string]any{
		"resourceType": "virtualMachines",
		"name":         s.name,
		"tier":         tier,
		"size":         short,
		"family":       s.family,
		"locations":    []any{location},
		"locationInfo": []any{map[string]any{"location": location, "zones": zoneList, "zoneDetails": []any{}}},
		"capabilities": list,
		"restrictions": restrictions,
	}
}

// capBool spells a capability as the SKU list does.
func capBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

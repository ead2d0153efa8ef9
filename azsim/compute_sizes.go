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

// gpus is the capability GPUs, which counts the sixth of an A10 as one. Figures of these sizes are
// those of Azure's pages on NCasT4_v3, NVadsA10_v5 and NC_A100_v4.
func (s vmSize) gpus() int {
	switch s.name {
	case "Standard_NC4as_T4_v3", "Standard_NV6ads_A10_v5", "Standard_NC24ads_A100_v4":
		return 1
	}
	return 0
}

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

// premium reports whether premium disks can be attached.
func (s vmSize) premium() bool { return s.cacheGB > 0 || s.boots("V2") }

// onlyNVMe tells that the OS disk is on NVMe whatever the model says.
func (s vmSize) onlyNVMe() bool { return s.controllers == "NVMe" }

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
		{"PremiumIO", capBool(s.premium())},
		{"VMDeploymentTypes", "IaaS"},
		{"EphemeralOSDiskSupported", capBool(s.ephemeral())},
		{"AcceleratedNetworkingEnabled", capBool(s.accelerated)},
		{"TrustedLaunchDisabled", capBool(!s.trusted)},
	}
	if n := s.gpus(); n > 0 {
		caps = append(caps, [2]string{"GPUs", strconv.Itoa(n)})
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

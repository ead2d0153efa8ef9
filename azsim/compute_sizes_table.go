package azsim

import (
	"fmt"
	"slices"
)

// The generations, controllers and architectures of sizes.
const (
	bothGens, gen1, gen2   = "V1,V2", "V1", "V2"
	scsi, nvme, scsiOrNVMe = "SCSI", "NVMe", "SCSI,NVMe"
	x64, arm64             = "x64", "Arm64"
)

const gib = 1024

// vmSizes are the sizes that the simulated regions offer.
func vmSizes() []vmSize {
	var all []vmSize
	for _, r := range sizeSeries() {
		for _, cores := range []int32{2, 4, 8, 16, 32, 48, 64} {
			all = append(all, vmSize{
				fmt.Sprintf(r.name, cores), r.family, cores, cores * r.memory * gib, min(2*cores, 32),
				cores * r.tempMB, cores * r.cacheGB, r.generations, x64, scsi, true, true, r.generations == bothGens, false,
			})
		}
	}
	return slices.Concat(all, currentSizes(), formerSizes())
}

// A series has sizes that differ by their number of cores alone.
type series struct {
	name, family string
	memory       int32 // GiB a core
	tempMB       int32 // a core
	cacheGB      int32 // a core
	generations  string
}

func sizeSeries() []series {
	return []series{
		{"Standard_D%d_v3", "standardDv3Family", 4, 25 * gib, 0, gen1},
		{"Standard_D%ds_v3", "standardDSv3Family", 4, 8 * gib, 25, bothGens},
		{"Standard_D%ds_v4", "standardDSv4Family", 4, 0, 0, bothGens},
		{"Standard_D%dds_v4", "standardDDSv4Family", 4, 37.5 * gib, 25, bothGens},
		{"Standard_D%ds_v5", "standardDSv5Family", 4, 0, 0, bothGens},
		{"Standard_D%dds_v5", "standardDDSv5Family", 4, 37.5 * gib, 0, bothGens},
		{"Standard_D%das_v5", "standardDASv5Family", 4, 0, 0, bothGens},
		{"Standard_D%dads_v5", "standardDADSv5Family", 4, 37.5 * gib, 0, bothGens},
		{"Standard_E%d_v3", "standardEv3Family", 8, 25 * gib, 0, gen1},
		{"Standard_E%ds_v3", "standardESv3Family", 8, 16 * gib, 25, bothGens},
		{"Standard_E%ds_v4", "standardESv4Family", 8, 0, 0, bothGens},
		{"Standard_E%dds_v4", "standardEDSv4Family", 8, 37.5 * gib, 25, bothGens},
		{"Standard_E%ds_v5", "standardESv5Family", 8, 0, 0, bothGens},
		{"Standard_E%dds_v5", "standardEDSv5Family", 8, 37.5 * gib, 0, bothGens},
		{"Standard_E%das_v5", "standardEASv5Family", 8, 0, 0, bothGens},
	}
}

// currentSizes are those of other series.
func currentSizes() []vmSize {
	return []vmSize{
		{"Standard_A2_v2", "standardAv2Family", 2, 4 * gib, 4, 20 * gib, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_B1ls", "standardBSFamily", 1, 512, 2, 4 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_B1s", "standardBSFamily", 1, 1 * gib, 2, 4 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_B1ms", "standardBSFamily", 1, 2 * gib, 2, 4 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_B2s", "standardBSFamily", 2, 4 * gib, 4, 8 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_B2ms", "standardBSFamily", 2, 8 * gib, 4, 16 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_B4ms", "standardBSFamily", 4, 16 * gib, 8, 32 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_D1_v2", "standardDv2Family", 1, 3584, 4, 50 * gib, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D2_v2", "standardDv2Family", 2, 7 * gib, 8, 100 * gib, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_DS1_v2", "standardDSv2Family", 1, 3584, 4, 7 * gib, 43, bothGens, x64, scsi, false, true, true, false},
		{"Standard_DS2_v2", "standardDSv2Family", 2, 7 * gib, 8, 14 * gib, 86, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS3_v2", "standardDSv2Family", 4, 14 * gib, 16, 28 * gib, 172, bothGens, x64, scsi, true, true, true, false},
		{"Standard_D2s_v6", "standardDSv6Family", 2, 8 * gib, 8, 0, 0, gen2, x64, nvme, true, true, true, false},
		{"Standard_D4s_v6", "standardDSv6Family", 4, 16 * gib, 12, 0, 0, gen2, x64, nvme, true, true, true, false},
		{"Standard_D2ds_v6", "standardDDSv6Family", 2, 8 * gib, 8, 110 * gib, 0, gen2, x64, nvme, true, true, true, false},
		{"Standard_D2as_v6", "standardDASv6Family", 2, 8 * gib, 4, 0, 0, gen2, x64, scsiOrNVMe, true, true, true, false},
		{"Standard_D2ads_v6", "standardDADSv6Family", 2, 8 * gib, 4, 110 * gib, 0, gen2, x64, scsiOrNVMe, true, true, true, false},
		{"Standard_D4ads_v6", "standardDADSv6Family", 4, 16 * gib, 8, 220 * gib, 0, gen2, x64, scsiOrNVMe, true, true, true, false},
		{"Standard_D2ps_v5", "standardDPSv5Family", 2, 8 * gib, 4, 0, 0, gen2, arm64, scsi, true, true, false, false},
		{"Standard_D4ps_v5", "standardDPSv5Family", 4, 16 * gib, 8, 0, 0, gen2, arm64, scsi, true, true, false, false},
		{"Standard_D2pds_v5", "standardDPDSv5Family", 2, 8 * gib, 4, 75 * gib, 0, gen2, arm64, scsi, true, true, false, false},
		{"Standard_DC2as_v5", "standardDCASv5Family", 2, 8 * gib, 4, 0, 0, gen2, x64, scsi, true, false, true, true},
		{"Standard_E2bs_v5", "standardEBSv5Family", 2, 16 * gib, 4, 0, 0, bothGens, x64, scsiOrNVMe, true, true, true, false},
		{"Standard_F2s_v2", "standardFSv2Family", 2, 4 * gib, 4, 16 * gib, 31, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F4s_v2", "standardFSv2Family", 4, 8 * gib, 8, 32 * gib, 63, bothGens, x64, scsi, true, true, true, false},
		{"Standard_L8s_v3", "standardLSv3Family", 8, 64 * gib, 16, 80 * gib, 0, bothGens, x64, scsi, true, true, true, false},
		{"Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, 28 * gib, 8, 176 * gib, 0, bothGens, x64, scsi, true, true, true, false},
		{"Standard_NV6ads_A10_v5", "StandardNVADSA10v5Family", 6, 55 * gib, 4, 180 * gib, 0, bothGens, x64, scsi, true, true, true, false},
		{"Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220 * gib, 8, 64 * gib, 256, gen2, x64, scsi, true, true, true, false},
		{"Standard_B8ms", "standardBSFamily", 8, 32 * gib, 16, 64 * gib, 0, bothGens, x64, scsi, false, false, true, false},
		{"Standard_F8s_v2", "standardFSv2Family", 8, 16 * gib, 16, 64 * gib, 127, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F16s_v2", "standardFSv2Family", 16, 32 * gib, 32, 128 * gib, 256, bothGens, x64, scsi, true, true, true, false},
	}
}

// formerSizes are those of the first series, which templates still name.
func formerSizes() []vmSize {
	return []vmSize{
		{"Basic_A0", "basicAFamily", 1, 768, 1, 20480, 0, gen1, x64, scsi, false, false, false, false},
		{"Basic_A1", "basicAFamily", 1, 1792, 2, 40960, 0, gen1, x64, scsi, false, false, false, false},
		{"Basic_A2", "basicAFamily", 2, 3584, 4, 61440, 0, gen1, x64, scsi, false, false, false, false},
		{"Basic_A3", "basicAFamily", 4, 7168, 8, 122880, 0, gen1, x64, scsi, false, false, false, false},
		{"Basic_A4", "basicAFamily", 8, 14336, 16, 245760, 0, gen1, x64, scsi, false, false, false, false},
		{"Standard_A0", "standardA0_A7Family", 1, 768, 1, 20480, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A1", "standardA0_A7Family", 1, 1792, 2, 71680, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A2", "standardA0_A7Family", 2, 3584, 4, 138240, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A3", "standardA0_A7Family", 4, 7168, 8, 291840, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A4", "standardA0_A7Family", 8, 14336, 16, 619520, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A5", "standardA0_A7Family", 2, 14336, 4, 138240, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A6", "standardA0_A7Family", 4, 28672, 8, 291840, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A7", "standardA0_A7Family", 8, 57344, 16, 619520, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A1_v2", "standardAv2Family", 1, 2048, 2, 10240, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A4_v2", "standardAv2Family", 4, 8192, 8, 40960, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A8_v2", "standardAv2Family", 8, 16384, 16, 81920, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A2m_v2", "standardAv2Family", 2, 16384, 4, 20480, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A4m_v2", "standardAv2Family", 4, 32768, 8, 40960, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_A8m_v2", "standardAv2Family", 8, 65536, 16, 81920, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D1", "standardDFamily", 1, 3584, 4, 51200, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D2", "standardDFamily", 2, 7168, 8, 102400, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D3", "standardDFamily", 4, 14336, 16, 204800, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D4", "standardDFamily", 8, 28672, 32, 409600, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D11", "standardDFamily", 2, 14336, 8, 102400, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D12", "standardDFamily", 4, 28672, 16, 204800, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D13", "standardDFamily", 8, 57344, 32, 409600, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_D14", "standardDFamily", 16, 114688, 64, 819200, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS1", "standardDSFamily", 1, 3584, 4, 7168, 43, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS2", "standardDSFamily", 2, 7168, 8, 14336, 86, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS3", "standardDSFamily", 4, 14336, 16, 28672, 172, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS4", "standardDSFamily", 8, 28672, 32, 57344, 344, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS11", "standardDSFamily", 2, 14336, 8, 28672, 72, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS12", "standardDSFamily", 4, 28672, 16, 57344, 144, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS13", "standardDSFamily", 8, 57344, 32, 114688, 288, gen1, x64, scsi, false, true, false, false},
		{"Standard_DS14", "standardDSFamily", 16, 114688, 64, 229376, 576, gen1, x64, scsi, false, true, false, false},
		{"Standard_D3_v2", "standardDv2Family", 4, 14336, 16, 204800, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D4_v2", "standardDv2Family", 8, 28672, 32, 409600, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D5_v2", "standardDv2Family", 16, 57344, 64, 819200, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D11_v2", "standardDv2Family", 2, 14336, 8, 102400, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D12_v2", "standardDv2Family", 4, 28672, 16, 204800, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D13_v2", "standardDv2Family", 8, 57344, 32, 409600, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D14_v2", "standardDv2Family", 16, 114688, 64, 819200, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_D15_v2", "standardDv2Family", 20, 143360, 64, 1024000, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_DS4_v2", "standardDSv2Family", 8, 28672, 32, 57344, 344, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS5_v2", "standardDSv2Family", 16, 57344, 64, 114688, 688, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS11_v2", "standardDSv2Family", 2, 14336, 8, 28672, 72, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS12_v2", "standardDSv2Family", 4, 28672, 16, 57344, 144, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS13_v2", "standardDSv2Family", 8, 57344, 32, 114688, 288, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS14_v2", "standardDSv2Family", 16, 114688, 64, 229376, 576, bothGens, x64, scsi, true, true, true, false},
		{"Standard_DS15_v2", "standardDSv2Family", 20, 143360, 64, 286720, 720, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F1", "standardFFamily", 1, 2048, 4, 16384, 0, gen1, x64, scsi, false, true, false, false},
		{"Standard_F2", "standardFFamily", 2, 4096, 8, 32768, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_F4", "standardFFamily", 4, 8192, 16, 65536, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_F8", "standardFFamily", 8, 16384, 32, 131072, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_F16", "standardFFamily", 16, 32768, 64, 262144, 0, gen1, x64, scsi, true, true, false, false},
		{"Standard_F1s", "standardFSFamily", 1, 2048, 4, 4096, 12, bothGens, x64, scsi, false, true, true, false},
		{"Standard_F2s", "standardFSFamily", 2, 4096, 8, 8192, 24, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F4s", "standardFSFamily", 4, 8192, 16, 16384, 48, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F8s", "standardFSFamily", 8, 16384, 32, 32768, 96, bothGens, x64, scsi, true, true, true, false},
		{"Standard_F16s", "standardFSFamily", 16, 32768, 64, 65536, 192, bothGens, x64, scsi, true, true, true, false},
	}
}

package timeline

import "github.com/ortet/ortet/internal/wire"

// Stage is a coarse part of a boot, by which boots are compared whatever units
// they have.
type Stage string

// The stages, in the order in which a boot goes through them.
const (
	StageRequest   Stage = "request"            // asked for, until Azure has the machine
	StagePlatform  Stage = "platform"           // until it runs
	StageFirmware  Stage = "firmware"           // and the boot loader
	StageKernel    Stage = "kernel"             //
	StageInitrd    Stage = "initrd"             //
	StageUserspace Stage = "userspace"          // systemd and units, until the network is there
	StageLocal     Stage = "cloud-init local"   //
	StageNetwork   Stage = "cloud-init network" //
	StageConfig    Stage = "cloud-init config"  //
	StageFinal     Stage = "cloud-init final"   //
	StageAgent     Stage = "agent"              // Azure's agent and the extensions that it runs
	StagePulls     Stage = "image pulls"        //
	StageServices  Stage = "services"           // other units, after the network
	StageKubelet   Stage = "kubelet"            // until its Node is registered
	StageReady     Stage = "node ready"         // from registered to Ready
)

// AllStages are the stages in their order.
func AllStages() []Stage {
	return []Stage{StageRequest, StagePlatform, StageFirmware, StageKernel, StageInitrd, StageUserspace, StageLocal, StageNetwork, StageConfig,
		StageFinal, StageAgent, StagePulls, StageServices, StageKubelet, StageReady}
}

// StageTime is what a stage took in one boot.
type StageTime struct {
	Stage Stage `json:"stage"`
	// OnPath is its share of the critical path, waits among it: those of all
	// stages add up to the total.
	OnPath wire.Micros `json:"onPathUsec"`
	// Wait is what of OnPath was waiting.
	Wait wire.Micros `json:"waitUsec,omitempty"`
	// Steps is of how many steps of the path OnPath is made; 0: the path does not
	// lead through it.
	Steps int `json:"steps"`
}

// Stages are the stages of a boot, in their order, also those that it had not.
func Stages(t Timeline) []StageTime {
	all := AllStages()
	out := make([]StageTime, len(all))
	for i, s := range all {
		out[i].Stage = s
	}
	for _, step := range t.Path {
		i := stageIndex(step.Stage)
		if i < 0 {
			continue
		}
		out[i].OnPath += step.End - step.Start
		out[i].Steps++
		if step.Wait != nil {
			out[i].Wait += step.End - step.Start
		}
	}
	return out
}

func stageIndex(s Stage) int {
	switch s {
	case StageRequest:
		return 0
	case StagePlatform:
		return 1
	case StageFirmware:
		return 2
	case StageKernel:
		return 3
	case StageInitrd:
		return 4
	case StageUserspace:
		return 5
	case StageLocal:
		return 6
	case StageNetwork:
		return 7
	case StageConfig:
		return 8
	case StageFinal:
		return 9
	case StageAgent:
		return 10
	case StagePulls:
		return 11
	case StageServices:
		return 12
	case StageKubelet:
		return 13
	case StageReady:
		return 14
	}
	return -1
}

// stageOf is the stage that an item belongs to.
func (b *boot) stageOf(i int32) Stage {
	for ; ; i = b.items[i].parent {
		it := &b.items[i]
		switch {
		case it.kind == KindPull:
			return StagePulls
		case it.unit != nil:
			return b.stageOfUnit(it)
		}
		switch it.id {
		case idRequest:
			return StageRequest
		case idCreate, idIdle, idReady, idEarlier:
			return StagePlatform
		case idFirmware, idLoader:
			return StageFirmware
		case idKernel, idSoft:
			return StageKernel
		case idInitrd:
			return StageInitrd
		case idManager:
			return StageUserspace
		case idFinish:
			return StageServices
		case idNode, idPod, idByKubelet:
			return StageReady
		case idCreated:
			return StageKubelet
		}
		switch it.source {
		case sourceAgent, sourceCSE, sourceAKS, sourceProvision:
			return StageAgent
		case sourceKubelet:
			return StageKubelet
		case sourceCloudInit:
			for _, row := range stageUnits {
				if row.source == it.source && it.parent < 0 && isOrIn(it.name, row.name) {
					return unitStage(row.units[0])
				}
			}
		}
		if it.parent < 0 {
			return b.byTime(it.start)
		}
	}
}

// isOrIn reports whether a span's name is one, or begins with one and a slash.
func isOrIn(name, whole string) bool {
	return name == whole || len(name) > len(whole) && name[:len(whole)] == whole && name[len(whole)] == '/'
}

func unitStage(unit string) Stage {
	switch unit {
	case "cloud-init-local.service":
		return StageLocal
	case "cloud-init.service", "cloud-init-network.service":
		return StageNetwork
	case "cloud-config.service":
		return StageConfig
	case "cloud-final.service":
		return StageFinal
	case "walinuxagent.service", "waagent.service":
		return StageAgent
	}
	if isKubelet(unit) {
		return StageKubelet
	}
	return ""
}

func (b *boot) stageOfUnit(it *item) Stage {
	if s := unitStage(it.name); s != "" {
		return s
	}
	return b.byTime(it.start)
}

// byTime is the stage of what is of none by its name: before the network was
// there, or after.
func (b *boot) byTime(at wire.Micros) Stage {
	if at <= b.online {
		return StageUserspace
	}
	return StageServices
}

// network is when the network was there: the target, else what is ordered before
// it on all machines; where neither is known, all counts as before.
func (b *boot) network() wire.Micros {
	if i, ok := b.byUnit[networkOnline]; ok && !b.items[i].open {
		return b.items[i].end
	}
	last := -maxTime
	for _, name := range beforeNetwork {
		if i, ok := b.byUnit[name]; ok && !b.items[i].open {
			last = max(last, b.items[i].end)
		}
	}
	if last == -maxTime {
		return maxTime
	}
	return last
}

const networkOnline = "network-online.target"

// beforeNetwork are units that are ordered before network-online.target by their own files.
// Source: cloud-init's, systemd's and NetworkManager's unit files (Before=).
var beforeNetwork = []string{"cloud-init.service", "cloud-init-network.service", "systemd-networkd-wait-online.service", "NetworkManager-wait-online.service"}

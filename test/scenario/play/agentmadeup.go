package play

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/wire"
)

// hasFiles reports whether the disks of the pool's nodes hold files, on which the agent's
// own code works.
func (w *world) hasFiles() bool { return w.story.Donor.Kind != noFiles }

// inspectMadeUp is what an inspection reports where the disks hold no files: what the
// setting disk says.
func (w *world) inspectMadeUp(p *corev1.Pod, command []string) {
	report := wire.GeneralizeReport{Capture: flagOf(command, "--capture"), Donor: flagOf(command, "--donor"), Outcome: wire.Generalized, DryRun: true, Unsaved: []string{"customData: there is no key to seal it to (--seal-to)"}}
	code := int32(0)
	if w.story.Donor.Disk == "preserve" {
		report.Outcome, report.Message, code = wire.DiskRefused, "/etc/cloud/cloud.cfg sets preserve_hostname: true", 3
	}
	if w.story.Donor.Disk == "secrets" && w.seenBefore() {
		accepted := slices.Contains(command, "--accept-pool-credentials")
		report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json", Accepted: accepted}}
		if !accepted {
			report.Outcome, code = wire.SecretsFound, 3
		}
	}
	w.reports(p, code, report)
}

// generalizeMadeUp is what the agent reports of such a copy.
func (w *world) generalizeMadeUp(p *corev1.Pod, c *computer, life int, d *disk, command []string) {
	if _, ok := w.runs(p); !ok || !w.lives(c, life) {
		w.podLost(p, 0)
		return
	}
	report := wire.GeneralizeReport{Capture: flagOf(command, "--capture"), Donor: flagOf(command, "--donor"), Outcome: wire.Generalized, Removed: 10, OS: "Debian"}
	w.mu.Lock()
	kill := w.story.Donor.Disk == "lost" && !w.lost
	w.lost = w.lost || kill
	there := d != nil && w.attachedDisk(c) == d
	stale := there && d.generalized
	if there && !kill && !stale && w.story.Donor.Disk != "secrets" {
		d.generalized, d.partly, d.host = true, d.half, ""
	}
	w.mu.Unlock()
	code := int32(0)
	switch {
	case kill:
		w.ended(p, 137, "OOMKilled", []byte("killed\n"))
		return
	case !there:
		report.Outcome, report.Message, code = wire.DiskRefused, "there is no disk at the LUN", 3
	case stale:
		report.Outcome, report.Message, code = wire.DiskRefused, "it is generalised already", 3
	case w.story.Donor.Disk == "secrets" && !slices.Contains(command, "--accept-pool-credentials"):
		report.Outcome, code = wire.SecretsFound, 3
		report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json"}}
	default:
		if slices.Contains(command, "--accept-pool-credentials") && !w.accepts() {
			w.broken("the pod %s accepts the pool's credentials, and nobody who asked does", p.Name)
		}
		if w.story.Donor.Disk == "secrets" {
			w.mu.Lock()
			d.generalized, d.partly, d.host = true, d.half, ""
			w.mu.Unlock()
			report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json", Accepted: true}}
		}
		if w.story.Donor.Disk != "nojoin" {
			report.Joins = []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
		}
		item, err := seal(flagOf(command, "--seal-to"))
		if err != nil {
			w.broken("seal customData: %v", err)
		}
		report.Saved = []wire.SealedItem{item}
	}
	w.reports(p, code, report)
}

// reports ends a pod with a report.
func (w *world) reports(p *corev1.Pod, code int32, report wire.GeneralizeReport) {
	text, err := json.Marshal(wire.GeneralizeLine{Report: &report})
	if err != nil {
		w.broken("%v", err)
	}
	w.ended(p, code, "", append(text, '\n'))
}

// seal is what ortet-node does with customData.
func seal(to string) (wire.SealedItem, error) {
	raw, err := base64.StdEncoding.DecodeString(to)
	if err != nil {
		return wire.SealedItem{}, err
	}
	key, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return wire.SealedItem{}, err
	}
	public, err := hpke.NewDHKEMPublicKey(key)
	if err != nil {
		return wire.SealedItem{}, err
	}
	sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/customData/"), []byte(firstCustomData))
	sum := sha256.Sum256([]byte(firstCustomData))
	return wire.SealedItem{Kind: wire.CustomData, SHA256: hex.EncodeToString(sum[:]), Sealed: sealed}, err
}

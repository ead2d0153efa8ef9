package azsimserver

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/wire"
)

// Flag returns what follows a flag in the command of one of Ortet's pods, "" without it.
func Flag(command []string, name string) string {
	if i := slices.Index(command, name); i >= 0 && i+1 < len(command) {
		return command[i+1]
	}
	return ""
}

// Seal encrypts to the capture's key in a pod's command, as ortet-node does.
func Seal(command []string, kind wire.SealedKind, name, text string) (wire.SealedItem, error) {
	raw, err := base64.StdEncoding.DecodeString(Flag(command, "--seal-to"))
	if err != nil {
		return wire.SealedItem{}, err
	}
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(raw)
	if err != nil {
		return wire.SealedItem{}, err
	}
	sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/"+string(kind)+"/"+name), []byte(text))
	sum := sha256.Sum256([]byte(text))
	return wire.SealedItem{Kind: kind, Name: name, SHA256: hex.EncodeToString(sum[:]), Sealed: sealed}, err
}

// Ended is the status of a pod whose only container ended with the code.
func Ended(p *corev1.Pod, code int32) corev1.PodStatus {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}}
}

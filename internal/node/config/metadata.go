package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// computePath gives the userData and the scale set's id in one request. 2021-02-01 is the
// first version that has both. Source: "Azure Instance Metadata Service".
const (
	computePath     = "/metadata/instance/compute?api-version=2021-02-01&format=json"
	metadataTimeout = 5 * time.Second
)

// machine is what the metadata service says of this one.
type machine struct {
	userData string // in base64
	pool     string // ARM id of the scale set, in lower case
}

// readMetadata puts one request to the metadata service at this address.
func readMetadata(ctx context.Context, service string) (m machine, err error) {
	a, err := bootstrap.AskMetadata(ctx, service, computePath, metadataTimeout)
	if err == nil && a.Code != 200 {
		err = errors.New(a.Status)
	}
	var compute struct {
		UserData string `json:"userData"`
		ScaleSet struct {
			ID string `json:"id"`
		} `json:"virtualMachineScaleSet"`
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &compute)
	}
	if err == nil && compute.ScaleSet.ID == "" {
		err = errors.New("the machine is in no scale set")
	}
	if err != nil {
		return m, fmt.Errorf("read userData from the metadata service: %w", err)
	}
	return machine{strings.TrimSpace(compute.UserData), strings.ToLower(compute.ScaleSet.ID)}, nil
}

// generation is what the userData claims, unverified; 0 where it is no document, or one
// beyond what counts.
func (m machine) generation() int64 {
	d, err := nodeconfig.ReadUnverified(m.userData)
	if err != nil {
		return 0
	}
	return nodeconfig.Counted(d.Generation)
}

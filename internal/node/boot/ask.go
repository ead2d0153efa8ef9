package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// kubelet asks it for the gauges of its start. Only its serving port has them,
// and it lets in whom the API server allows nodes/metrics: a kubelet's own
// certificate is not among those unless somebody said so. What it took is then
// told by its journal.
func (c *collection) kubelet(ctx context.Context) {
	const name, path = "kubelet-metrics", "https://127.0.0.1:10250/metrics"
	if !c.o.own() {
		c.say(name, path, wire.SourceMissing, "the node's root is another than this system's, whose kubelet is not asked")
		return
	}
	a, err := bootstrap.AskKubelet(ctx, c.o.Root, "/metrics")
	switch {
	case err != nil:
		c.say(name, path, wire.SourceMissing, err.Error())
	case a.Code == 403:
		c.say(name, path, wire.SourceMissing, a.Status+": the node's own certificate may not get nodes/metrics; its journal tells when it started and registered")
	case a.Code != 200:
		c.say(name, path, wire.SourceMissing, a.Status)
	default:
		o := c.window
		o.Path = path
		c.parts = append(c.parts, source.KubeletMetrics(bytes.NewReader(a.Body), o)...)
	}
}

const (
	metadataPath    = "/metadata/instance/compute?api-version=2021-02-01"
	metadataTimeout = 3 * time.Second
)

// metadata asks Azure what the machine was made from.
func (c *collection) metadata(ctx context.Context) {
	const name = "metadata"
	switch {
	case !c.o.own() || c.o.Metadata == MetadataNo:
		return
	case c.o.Metadata != MetadataYes && c.who.VMID == "":
		c.say(name, "", wire.SourceMissing, "the firmware does not say that this is Azure")
		return
	}
	a, err := bootstrap.AskMetadata(ctx, bootstrap.MetadataService, metadataPath, metadataTimeout)
	if err == nil && a.Code != 200 {
		err = fmt.Errorf("it answered %s", a.Status)
	}
	var r wire.BootReport
	if err == nil {
		r, err = parseMetadata(a.Body)
	}
	if err != nil {
		c.say(name, metadataPath, wire.SourceMissing, err.Error())
		return
	}
	r.Sources = []wire.BootSource{{Name: name, Path: metadataPath, State: wire.SourceRead}}
	c.parts = append(c.parts, r)
}

// parseMetadata reads the metadata service's compute document.
func parseMetadata(text []byte) (wire.BootReport, error) {
	var doc struct {
		VMID    string `json:"vmId"`
		Storage struct {
			Image struct {
				ID        string `json:"id"`
				Publisher string `json:"publisher"`
				Offer     string `json:"offer"`
				SKU       string `json:"sku"`
				Version   string `json:"version"`
			} `json:"imageReference"`
		} `json:"storageProfile"`
	}
	r := wire.BootReport{Version: wire.BootReportVersion}
	if err := json.Unmarshal(text, &doc); err != nil {
		return r, fmt.Errorf("reading the instance's metadata: %w", err)
	}
	r.VMID = strings.ToLower(doc.VMID)
	switch i := doc.Storage.Image; {
	case i.ID != "":
		r.Image = i.ID
	case i.Publisher != "" && i.Offer != "":
		r.Image = strings.Join([]string{i.Publisher, i.Offer, i.SKU, i.Version}, ":")
	}
	return r, nil
}

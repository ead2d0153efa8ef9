// Package lab is what a pool of real machines is made from: the disk image that
// plays the marketplace's, and the custom data that makes a node of it.
package lab

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"text/template"
)

//go:embed customdata.yaml.tmpl
var customData string

// APIServer is the API server's URL as machines see it, by the address of the
// service "kubernetes", which every control plane's certificate carries. A
// frontend of the machines' network has to lead from it to the API server.
const APIServer = "https://10.96.0.1:443"

// Images that the disk image holds. No registry has them.
const (
	PauseImage = "lab.ortet.invalid/pause:1"
	WebImage   = "lab.ortet.invalid/web:1"
)

// A Pool is what its nodes have in common.
type Pool struct {
	BootstrapKubeconfig []byte // with a bootstrap token, leading to APIServer
	CA                  []byte // PEM: who may ask a kubelet
	Files               []File // more files, such as azure.json
}

// A File is one file for the nodes.
type File struct {
	Path    string
	Mode    string // "0600"
	Content []byte
}

// CustomData is the cloud-config by which a machine bootstraps into the pool, as
// a scale set's osProfile.customData holds it, not yet in base64.
func CustomData(p Pool) ([]byte, error) {
	t, err := template.New("customdata").Funcs(template.FuncMap{"b64": base64.StdEncoding.EncodeToString}).Parse(customData)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("write the pool's custom data: %w", err)
	}
	return out.Bytes(), nil
}

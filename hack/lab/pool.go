// Package lab is what a pool of real machines is made from: the disk image that
// plays the marketplace's, and the custom data that makes a node of it.
//
// It needs root on Debian and the packages in packages.txt. The machines
// themselves are azsim/machine. By hand:
//
//	go run ./hack/lab/images --out DIR
//	hack/lab/rootfs.sh --controlplane FILE --images DIR
//
// Its test boots machines that join a real control plane:
//
//	ORTET_LAB=1 go test -tags e2e ./hack/lab/
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

// The API server as machines and pods see it: by the address of the service
// "kubernetes", which every control plane's certificate carries. A frontend of
// the machines' network has to lead from there to the API server.
const (
	APIServerFrontend = "10.96.0.1:443"
	APIServer         = "https://" + APIServerFrontend
)

// Images that the disk image holds. No registry has them.
const (
	PauseImage = "lab.ortet.invalid/pause:1"
	WebImage   = "lab.ortet.invalid/web:1"
)

// A Pool is what its nodes have in common.
type Pool struct {
	BootstrapKubeconfig []byte // with a bootstrap token, leading to APIServer
	CA                  []byte // PEM: who may ask a kubelet
	// Join are settings of ortet-node join, by which nodes get the two above for
	// themselves; nil leaves it at those. The image has to hold ortet-node and
	// ortet-join.service.
	Join  []byte
	Files []File // more files, such as azure.json
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

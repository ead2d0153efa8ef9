package main

import (
	"errors"

	"github.com/ortet/ortet/internal/node/config"
)

// openConfiguration is the node's store and applier.
//
// TO BE WIRED AT THE MERGE: files.OS(root), files.Open, and apply.New with
// m.kubeletConfigDir, m.boot and m.log.
func openConfiguration(configMachine) (config.Store, config.Applier, error) {
	return nil, nil, errors.New("open the configuration's store: not wired yet")
}

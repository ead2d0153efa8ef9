package main

import (
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/apply"
	"github.com/ortet/ortet/internal/node/config/files"
)

// openConfiguration is the node's store and applier.
func openConfiguration(m configMachine) (config.Store, config.Applier, error) {
	root := m.root
	if root == "" {
		root = bootstrap.DefaultRoot()
	}
	machine, err := files.OS(root)
	if err != nil {
		return nil, nil, err
	}
	store, err := files.Open(machine)
	if err != nil {
		return nil, nil, err
	}
	return store, apply.New(apply.Options{
		Root: root, Files: store, System: apply.Machine(), KubeletConfigDir: m.kubeletConfigDir,
		Heartbeat: config.Heartbeat(config.AsKubelet(m.root), time.Now), Now: time.Now, Log: m.log, Boot: m.boot,
	}), nil
}

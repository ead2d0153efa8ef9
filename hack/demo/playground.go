package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/ortet/ortet/test/azsimserver"
)

// ports is how many the world listens on, with room for nodes that are added.
const ports = 24

// freePorts reports whether loopback has so many.
func freePorts() (err error) {
	for range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("cannot open %d ports of 127.0.0.1: %w; end what listens there (ss -ltn shows it), "+
				"or widen net.ipv4.ip_local_port_range", ports, err)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	return nil
}

// invite says how a user's own commands reach the world. Lines fit 60 columns. bad is the
// node whose image breaks; "" is none.
func invite(out io.Writer, dir string, kube cluster, azure *azsimserver.Azure, node, bad string) error {
	vars := []string{"NODE=" + node, "SCALESET=" + pool, "ORTET_IMAGE=" + image, "ORTET_ACCEPT_POOL_CREDENTIALS=true"}
	try := "ortet capture $NODE --dry-run\nortet capture $NODE --grow 1\n"
	if bad != "" {
		vars = append(vars, "BAD_NODE="+bad, "ORTET_BOOTSTRAP=baked")
		try += "ortet capture $BAD_NODE --again --grow 2 --watch 30m\n"
	}
	env, err := enter(dir, kube.kubeconfig, kube.kubectl, "export "+strings.Join(vars, " ")+"\n", azure)
	if err != nil {
		return err
	}
	say(out, "This world is yours until Ctrl-C")
	fmt.Fprintf(out, `Read this in another terminal, to be closed afterwards:

. %s

It puts ortet in PATH, and sets what a command line would:
  %s
`, env, strings.Join(vars, "\n  "))
	if bad != "" {
		fmt.Fprint(out, "New nodes cannot join from an image of BAD_NODE: its disk\nnames a wrong API server, and nodes join by the image.\n")
	}
	fmt.Fprintf(out, `
docs/tutorials/first-hour.md goes on from here. For a start:

%sortet nodes
ortet boot show $NODE
ortet donors --min-ready=0
kubectl get nodes    # docs/reference/playground.md
`, try)
	return nil
}

// enter writes the file that a shell reads to reach the world, and more into it. kubectl is
// a command of the shell; "" is the user's own.
func enter(dir, kubeconfig, kubectl, more string, azure *azsimserver.Azure) (env string, err error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	// Programs rather than functions of the shell: timeout and watch find them.
	env, folder := filepath.Join(dir, "env"), filepath.Join(dir, "bin")
	err = errors.Join(os.Mkdir(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "ortet"),
			fmt.Appendf(nil, "#!/bin/sh\nexec %s/ortet --azure-config=%s \"$@\"\n", bin, azure.Endpoint.AzureConfig), 0o755),
		os.Symlink(filepath.Join(bin, "ortet"), filepath.Join(folder, "kubectl-ortet")),
		os.Symlink(filepath.Join(bin, "ortet"), filepath.Join(folder, "kubectl_complete-ortet")),
		os.WriteFile(env, fmt.Appendf(nil, "export KUBECONFIG=%s SSL_CERT_FILE=%s ORTET_AZURE_CONFIG=%s\nexport PATH=\"%s:$PATH\"\n%s",
			kubeconfig, azure.Endpoint.CAFile, azure.Endpoint.AzureConfig, folder, more), 0o600))
	if kubectl != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", kubectl), 0o755))
	}
	return env, err
}

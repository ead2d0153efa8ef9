package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// serverKubeconfig is where k3s keeps the administrator's kubeconfig.
const serverKubeconfig = "/etc/rancher/k3s/k3s.yaml"

const (
	maxKubeconfig    = 64 << 10 // bytes that a server may send; k3s writes 3 KiB
	maxAuthorities   = 4        // certificates in certificate-authority-data
	maxUnknownFields = 20       // that a refusal names
)

func newClusterKubeconfig(c *clusterOptions) *cobra.Command {
	var toStdout bool
	var name string
	cmd := c.serverCommand("kubeconfig", "Get the cluster's kubeconfig and merge it into yours", `kubeconfig fetches the administrator's kubeconfig from the server by SSH and merges it
into the file of --kubeconfig, $KUBECONFIG or ~/.kube/config, as a context named after
the cluster, which becomes the current one. It stays valid over ortet cluster down and
up, until its client certificate ends, 365 days after k3s made it. k3s makes another one
when it starts within 120 days of that end (older versions: 90). Run this command again
then.

Of the server's file it takes the authority, the client certificate and its key. A file
with any other setting is refused: kubectl would run or obey it on this computer.`, func(ctx context.Context, t *target, _ []string) error {
		name := first(name, t.cluster.Metadata.Name)
		text, err := t.readKubeconfig(ctx, c.process.Err)
		if err != nil {
			return err
		}
		config, err := t.kubeconfig(text, name)
		if err != nil {
			return err
		}
		if toStdout {
			text, err := clientcmd.Write(*config)
			if err != nil {
				return fmt.Errorf("write the kubeconfig: %w", err)
			}
			_, err = c.process.Out.Write(text)
			return err
		}
		file, err := c.mergeKubeconfig(config, name)
		if err != nil {
			return err
		}
		return c.print(map[string]any{"file": file, "context": name, "server": config.Clusters[name].Server}, func(w io.Writer) {
			say(w, "Context %s is the current one in %s.", name, file)
		})
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
			return usagef("--name %q: want at most 253 characters, without spaces and control characters", name)
		}
		return nil
	}
	cmd.Flags().BoolVar(&toStdout, "print", false, "print it instead of merging it")
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the context (default: the cluster's name)")
	return cmd
}

func (t *target) readKubeconfig(ctx context.Context, stderr io.Writer) ([]byte, error) {
	get := t.ssh(ctx, nil, "sudo", "cat", serverKubeconfig)
	get.Stderr = &plainWriter{to: stderr}
	out, err := get.StdoutPipe()
	if err == nil {
		err = get.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("run ssh: %w; install the OpenSSH client", err)
	}
	text, err := io.ReadAll(io.LimitReader(out, maxKubeconfig+1))
	if len(text) > maxKubeconfig {
		_ = out.Close() // ssh ends by it
		_ = get.Wait()
		return nil, refuseKubeconfig([]string{fmt.Sprintf("it is longer than %d KiB", maxKubeconfig>>10)})
	}
	if err := errors.Join(err, get.Wait()); err != nil {
		return nil, fmt.Errorf("read %s on the server by ssh: %w; ortet cluster logs shows whether k3s runs", serverKubeconfig, err)
	}
	return text, nil
}

// refuseKubeconfig refuses the server's file. The server decides what is in it, and what
// kubectl finds in a kubeconfig may name a program that kubectl runs.
func refuseKubeconfig(problems []string) error {
	r := &workflow.Refused{}
	for _, p := range problems {
		r.Problems = append(r.Problems, fleet.Problem{Code: "UntrustedKubeconfig", On: "the server's " + serverKubeconfig, What: p})
	}
	last := &r.Problems[len(r.Problems)-1]
	last.WayOut = "see on the server who changed the file (ortet cluster ssh); k3s writes none of this, and a restart of k3s writes the file again"
	return r
}

// k3sFields are those that k3s writes. Its names are not used.
var k3sFields = []string{"apiVersion", "kind", "preferences", "current-context",
	"clusters[0].name", "clusters[0].cluster.server", "clusters[0].cluster.certificate-authority-data",
	"users[0].name", "users[0].user.client-certificate-data", "users[0].user.client-key-data",
	"contexts[0].name", "contexts[0].context.cluster", "contexts[0].context.user"}

// addFields adds the values of a document by their paths.
func addFields(all map[string]string, path string, v any) {
	members := 0
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			addFields(all, strings.TrimPrefix(path+"."+key, "."), one)
		}
		members = len(v)
	case []any:
		for i, one := range v {
			addFields(all, fmt.Sprintf("%s[%d]", path, i), one)
		}
		members = len(v)
	}
	if members == 0 {
		all[path] = fmt.Sprint(v)
	}
}

// kubeconfig returns a kubeconfig with the data of the server's certificates and key, and
// with the address that Azure names.
func (t *target) kubeconfig(text []byte, name string) (*clientcmdapi.Config, error) {
	var document any
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return nil, refuseKubeconfig([]string{fmt.Sprintf("it has another form than k3s's: %.200q", err)})
	}
	fields := map[string]string{}
	addFields(fields, "", document)
	var problems []string
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if len(problems) == maxUnknownFields {
			refuse("it has more fields that are not accepted from a server")
			break
		}
		if !slices.Contains(k3sFields, path) {
			refuse("%.120s is not accepted from a server", strings.Trim(strconv.Quote(path), `"`))
		}
	}
	if fields["apiVersion"] != "v1" || fields["kind"] != "Config" {
		refuse("kind is not Config of v1")
	}
	data := func(field string) []byte {
		out, err := base64.StdEncoding.DecodeString(fields[field])
		if err != nil || len(out) == 0 {
			refuse("%s is not base64", field)
		}
		return out
	}
	authorities := data("clusters[0].cluster.certificate-authority-data")
	certificate := data("users[0].user.client-certificate-data")
	key := data("users[0].user.client-key-data")
	if len(problems) == 0 {
		all, err := cert.ParseCertsPEM(authorities)
		written, unwritten := cert.EncodeCertificates(all...)
		if errors.Join(err, unwritten) != nil || len(all) > maxAuthorities || !bytes.Equal(bytes.TrimSpace(written), bytes.TrimSpace(authorities)) {
			refuse("clusters[0].cluster.certificate-authority-data is not accepted: want 1 to %d certificates, and nothing else", maxAuthorities)
		}
		if _, err := tls.X509KeyPair(certificate, key); err != nil {
			refuse("users[0].user.client-key-data and client-certificate-data are no pair: %v", err)
		}
	}
	if len(problems) > 0 {
		return nil, refuseKubeconfig(problems)
	}
	out := clientcmdapi.NewConfig()
	server := "https://" + net.JoinHostPort(t.address, "6443")
	out.Clusters[name] = &clientcmdapi.Cluster{Server: server, TLSServerName: t.name, CertificateAuthorityData: authorities}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return out, nil
}

// mergeKubeconfig puts the entries into the kubeconfig that kubectl would change. Entries
// of that name that are not this cluster's are left alone.
func (c *clusterOptions) mergeKubeconfig(config *clientcmdapi.Config, name string) (string, error) {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = c.kubeconfig
	if files := filepath.SplitList(c.process.Getenv(clientcmd.RecommendedConfigPathEnvVar)); c.kubeconfig == "" && len(files) > 0 {
		paths.GlobalFile = files[0]
		paths.LoadingRules.Precedence = files
	}
	mine, err := paths.GetStartingConfig()
	if err != nil {
		return "", fmt.Errorf("read your kubeconfig: %w", err)
	}
	cluster, user, in := config.Clusters[name], config.AuthInfos[name], config.Contexts[name]
	if err := othersEntries(mine, cluster, name); err != nil {
		return "", err
	}
	file := paths.GetDefaultFilename()
	if old := mine.Clusters[name]; old != nil {
		cluster.LocationOfOrigin = old.LocationOfOrigin
	}
	if old := mine.AuthInfos[name]; old != nil {
		file, user.LocationOfOrigin = old.LocationOfOrigin, old.LocationOfOrigin
	}
	if old := mine.Contexts[name]; old != nil {
		in.LocationOfOrigin, in.Namespace = old.LocationOfOrigin, old.Namespace
	}
	// clientcmd makes new files 0600, and leaves the mode of others.
	if err := os.Chmod(file, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("keep others from your kubeconfig, which gets a key: %w", err)
	}
	mine.Clusters[name], mine.AuthInfos[name], mine.Contexts[name] = cluster, user, in
	mine.CurrentContext = name
	if err := clientcmd.ModifyConfig(paths, *mine, true); err != nil {
		return "", fmt.Errorf("write your kubeconfig: %w", err)
	}
	return file, nil
}

// othersEntries refuses entries of the name that an earlier run for this cluster did not
// make.
func othersEntries(mine *clientcmdapi.Config, want *clientcmdapi.Cluster, name string) error {
	r := &workflow.Refused{}
	refuse := func(is bool, kind, what string) {
		if is {
			r.Problems = append(r.Problems, fleet.Problem{Code: "OthersKubeconfigEntry", On: "your kubeconfig", What: kind + " " + name + " is another's: " + what, WayOut: "give --name"})
		}
	}
	cluster, user, in := mine.Clusters[name], mine.AuthInfos[name], mine.Contexts[name]
	if cluster != nil {
		// A DNS name of Azure's is unique, a name in a tailnet is not; one cluster has several.
		unique := func(name string) bool { return strings.Contains(name, ".") }
		same := unique(want.TLSServerName) && cluster.TLSServerName == want.TLSServerName ||
			!unique(cluster.TLSServerName) && cluster.Server == want.Server ||
			bytes.Equal(cluster.CertificateAuthorityData, want.CertificateAuthorityData)
		refuse(!same, "cluster", "it is "+cluster.Server)
	}
	if user != nil {
		bare := clientcmdapi.NewAuthInfo()
		bare.LocationOfOrigin, bare.ClientCertificateData, bare.ClientKeyData = user.LocationOfOrigin, user.ClientCertificateData, user.ClientKeyData
		refuse(cluster == nil, "user", "no cluster has that name")
		refuse(cluster != nil && !equality.Semantic.DeepEqual(bare, user), "user", "it has more than a client certificate and its key")
	}
	if in != nil {
		refuse(in.Cluster != name || in.AuthInfo != name, "context", "it leads to cluster "+in.Cluster+" as user "+in.AuthInfo)
	}
	if len(r.Problems) == 0 {
		return nil
	}
	return r
}

package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
)

func newClusterInit(c *clusterOptions) *cobra.Command {
	var (
		name, location, account, server string
		pools                           []string
		existing                        bool
	)
	cmd := clusterCommand("init", "Write a cluster.yaml to start from", `init writes cluster.yaml with comments that explain each field. On a terminal it asks
for what the flags do not give. A file that exists is never overwritten.`, func(context.Context, []string) error {
		o := k3s.InitOptions{Name: name, Random: rand.Reader}
		s := &o.Spec
		s.Location, s.Server.Size = location, server
		s.Storage.Account, s.Storage.Existing = account, existing
		for _, text := range pools {
			name, rest, found := strings.Cut(text, "=")
			count, size, _ := strings.Cut(rest, ":")
			n, err := strconv.Atoi(count)
			if !found || err != nil || n < 0 {
				return usagef("--pool %q: want NAME=COUNT or NAME=COUNT:SIZE", text)
			}
			s.Pools = append(s.Pools, k3s.Pool{Name: name, Count: &n, Size: size})
		}
		if err := c.ask(&o); err != nil {
			return err
		}
		text, err := k3s.Init(o)
		if err != nil {
			return err
		}
		if err := writeNew(c.file, text, 0o644); err != nil {
			return err
		}
		return c.print(map[string]string{"file": c.file}, func(w io.Writer) {
			fmt.Fprintln(w, "Wrote "+c.file+".")
			say(w, "Next: ortet cluster keys; ortet cluster artifacts DIR, whose block goes into the file; ortet cluster up")
		})
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "`NAME` of the cluster, at most 20 characters")
	f.StringVar(&location, "location", "", "Azure `REGION`, such as westeurope")
	f.StringVar(&server, "server-size", "", "`SIZE` of the server's VM (default Standard_D2s_v5)")
	f.StringArrayVar(&pools, "pool", nil, "`NAME=COUNT[:SIZE]` of a pool of agents; may be given several times (default agents=3)")
	f.StringVar(&account, "storage-account", "", "`NAME` of the storage account (default: made up)")
	f.BoolVar(&existing, "existing-account", false, "use the storage account as it is; it is neither made nor deleted")
	return cmd
}

// ask asks for what is missing and has no default, on a terminal; elsewhere it is an
// error.
func (c *clusterOptions) ask(o *k3s.InitOptions) error {
	in, isFile := c.process.In.(*os.File)
	for _, q := range []struct {
		what, flag string
		to         *string
	}{{"Name of the cluster", "--name", &o.Name}, {"Azure region", "--location", &o.Spec.Location}} {
		if *q.to != "" {
			continue
		}
		if !isFile || !term.IsTerminal(int(in.Fd())) {
			return usagef("%s is missing", q.flag)
		}
		fmt.Fprint(c.process.Err, q.what+": ")
		_, _ = fmt.Fscanln(in, q.to) // no answer is refused as an empty field
	}
	return nil
}

func newClusterValidate(c *clusterOptions) *cobra.Command {
	return clusterCommand("validate", "Check cluster.yaml without asking Azure", "", func(context.Context, []string) error {
		cluster, err := c.read()
		if err != nil {
			return err
		}
		return c.print(cluster, func(w io.Writer) {
			s := cluster.Spec
			say(w, "%s is valid: cluster %s in %s, 1 server, %s, storage account %s.", c.file, cluster.Metadata.Name, s.Location, fleet.Count(len(s.Pools), "pool"), s.Storage.Account)
			if names := s.Artifacts.Placeholders(); len(names) > 0 {
				say(w, "Digests are still missing: %s. Write the block with ortet cluster artifacts.", strings.Join(names, ", "))
			}
		})
	})
}

func newClusterKeys(c *clusterOptions) *cobra.Command {
	return clusterCommand("keys", "Make the SSH key pair of the cluster's administrator", `keys makes an Ed25519 key pair beside cluster.yaml: NAME, the private key without a
passphrase, and NAME.pub. Files that exist are never overwritten.`, func(context.Context, []string) error {
		cluster, err := c.read()
		if err != nil {
			return err
		}
		public := c.keyFile(cluster)
		private, found := strings.CutSuffix(public, ".pub")
		if !found {
			return fmt.Errorf("cannot make a key pair: spec.access.sshKey %s does not end in .pub", public)
		}
		fingerprint, err := makeKeys(private, public, "ortet-"+cluster.Metadata.Name)
		if err != nil {
			return fmt.Errorf("cannot make a key pair: %w", err)
		}
		return c.print(map[string]string{"privateKey": private, "publicKey": public, "fingerprint": fingerprint}, func(w io.Writer) {
			fmt.Fprintf(w, "Private key: %s\nPublic key:  %s\nFingerprint: %s\n", private, public, fingerprint)
		})
	})
}

func makeKeys(private, public, comment string) (fingerprint string, err error) {
	for _, name := range []string{private, public} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return "", refuse("FileExists", name, "file exists and is not overwritten", "use it, or move it away first")
		}
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return "", err
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", err
	}
	if err := writeNew(private, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p))) + " " + comment + "\n"
	return ssh.FingerprintSHA256(p), writeNew(public, []byte(line), 0o644)
}

// writeNew writes a file that must not exist.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, fs.ErrExist) {
		return refuse("FileExists", name, "file exists and is not overwritten", "use it, or move it away first")
	}
	if err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	return nil
}

// readPublicKey reads the first line of an authorized_keys file that is a key.
func readPublicKey(name string) (line string, err error) {
	defer func() { err = refuseFile(name, err) }()
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read SSH public key: %w; make a key pair with ortet cluster keys, or set spec.access.sshKey", err)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key: %w", err)
	}
	key, comment, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key %s: %w; want a line such as ssh-ed25519 AAAA…", name, err)
	}
	return strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment), nil
}

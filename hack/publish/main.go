// Command publish pushes what `make release REGISTRY=…` put into dist/ to that registry:
// the container image's index and the Helm charts. It asks the registry for everything
// first, and pushes nothing if one of them is refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func main() {
	from := flag.String("from", "dist", "folder that make release wrote")
	registry := flag.String("registry", "", "registry to push to, as make release was given it: HOST[:PORT][/PATH]")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := publish(ctx, os.Stdout, *from, *registry)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1)
	}
}

// artifact is something to push under a tag.
type artifact struct {
	tag    name.Tag
	digest v1.Hash
	there  bool
	push   func(...remote.Option) error
}

func publish(ctx context.Context, out io.Writer, from, registry string) error {
	if registry == "" {
		return fmt.Errorf("no registry given; run make publish REGISTRY=HOST/PATH")
	}
	folder, err := os.MkdirTemp("", "ortet-publish-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	image, err := imageIn(from, folder, registry)
	if err != nil {
		return err
	}
	charts, err := chartsIn(from, registry, image.tag.Repository.Name()+"@"+image.digest.String())
	if err != nil {
		return err
	}
	// A chart names the image, so the image is there first.
	all := append([]artifact{image}, charts...)
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var refusals []error
	for i, a := range all {
		if all[i].there, err = a.ask(options); err != nil {
			refusals = append(refusals, err)
		}
	}
	if err := errors.Join(refusals...); err != nil {
		return fmt.Errorf("nothing was pushed:\n%w", err)
	}
	for _, a := range all {
		note := " (was there)"
		if !a.there {
			note = ""
			if err := a.push(options...); err != nil {
				return explain("push", a.tag, err)
			}
		}
		fmt.Fprintf(out, "%s@%s%s\n", a.tag, a.digest, note)
	}
	return nil
}

// ask returns whether the registry has the artifact, and an error if it has another under
// that tag or would not take it.
func (a artifact) ask(options []remote.Option) (bool, error) {
	found, err := remote.Head(a.tag, options...)
	var refused *transport.Error
	switch {
	case err == nil && found.Digest == a.digest:
		return true, nil
	case err == nil:
		return false, fmt.Errorf("push %s@%s: the tag exists with %s; a published version does not change: release under another version", a.tag, a.digest, found.Digest)
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		err = remote.CheckPushPermission(a.tag, authn.DefaultKeychain, remote.DefaultTransport)
	}
	if err != nil {
		return false, explain("push", a.tag, err)
	}
	return false, nil
}

// explain adds what to do.
func explain(verb string, tag name.Tag, err error) error {
	registry := tag.RegistryStr()
	var refused *transport.Error
	switch {
	case !errors.As(err, &refused):
		return fmt.Errorf("%s %s: %w; check the name of the registry and the way to it (HTTPS_PROXY, SSL_CERT_FILE)", verb, tag, err)
	case refused.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s %s: %s refused the credentials or has none (%w); run docker login %s or podman login %s", verb, tag, registry, err, registry, registry)
	case refused.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s %s: %s does not allow this account to push (%w); grant push on %s", verb, tag, registry, err, strings.TrimPrefix(tag.Repository.Name(), registry+"/"))
	}
	return fmt.Errorf("%s %s: %w", verb, tag, err)
}

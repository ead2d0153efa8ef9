package generalize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

var layerID = regexp.MustCompile(`^[0-9a-f]{32,64}(-init)?$`)

// cleanDocker removes containers, their writable layers and volumes from a
// Docker folder with the overlay2 driver. Image layers stay.
func cleanDocker(_ context.Context, c *cleaner, _ string) (tree.Count, error) {
	const root = "var/lib/docker"
	var total tree.Count
	if ok, err := c.t.Exists(root); err != nil || !ok {
		return total, err
	}
	mounts, err := c.t.Glob(root + "/image/*/layerdb/mounts/*")
	if err != nil {
		return total, err
	}
	for _, m := range mounts {
		driver := path.Base(path.Dir(path.Dir(path.Dir(m))))
		for _, idFile := range []string{"mount-id", "init-id"} {
			data, err := readOptional(c.t, m+"/"+idFile, 256)
			if err != nil {
				return total, err
			}
			id := strings.TrimSpace(string(data))
			if !layerID.MatchString(id) {
				continue
			}
			n, err := c.dropDockerLayer(path.Join(root, driver, id))
			if err != nil {
				return total, err
			}
			total.Add(n)
		}
		if err := c.removeAll(&total, m); err != nil {
			return total, err
		}
	}
	err = c.removeBelow(&total, root, "/containers/*", "/volumes/*", "/network/files/*", "/tmp/*", "/runtimes/*", "/buildkit/executor/*")
	return total, err
}

// dropDockerLayer removes a layer's folder and its short link in overlay2/l.
func (c *cleaner) dropDockerLayer(at string) (tree.Count, error) {
	link, err := readOptional(c.t, at+"/link", 256)
	if err != nil {
		return tree.Count{}, err
	}
	total, err := c.t.Remove(at)
	if err != nil {
		return total, err
	}
	if name := strings.TrimSpace(string(link)); name != "" && !strings.ContainsAny(name, "/.") {
		err = c.removeAll(&total, path.Join(path.Dir(at), "l", name))
	}
	return total, err
}

// maxCRIOList bounds the JSON lists of containers/storage.
const maxCRIOList = 64 << 20

// cleanCRIO removes containers and their writable layers from a folder of
// containers/storage with the overlay driver. Images and their layers stay.
func cleanCRIO(_ context.Context, c *cleaner, _ string) (tree.Count, error) {
	const root = "var/lib/containers/storage"
	var total tree.Count
	gone := map[string]bool{}
	lists, err := c.t.Glob(root + "/overlay-containers/*containers.json")
	if err != nil {
		return total, err
	}
	for _, list := range lists {
		var containers []struct {
			Layer string `json:"layer"`
		}
		data, err := c.t.ReadFile(list, maxCRIOList)
		if err != nil {
			return total, err
		}
		if err := json.Unmarshal(data, &containers); err != nil {
			return total, fmt.Errorf("reading /%s: %w", list, err)
		}
		for _, x := range containers {
			if layerID.MatchString(x.Layer) {
				gone[x.Layer] = true
			}
		}
	}
	layers, err := c.t.Glob(root + "/overlay-layers/*layers.json")
	if err != nil {
		return total, err
	}
	for _, list := range layers {
		if err := c.dropLayers(list, gone); err != nil {
			return total, err
		}
	}
	for id := range gone {
		if err := c.removeAll(&total, root+"/overlay/"+id, root+"/overlay-layers/"+id+".tar-split.gz"); err != nil {
			return total, err
		}
	}
	// The list of containers last: it is what the next run would need.
	paths, err := c.t.Glob(root + "/overlay-containers/*")
	if err != nil {
		return total, err
	}
	paths = slices.DeleteFunc(paths, func(at string) bool { return strings.HasSuffix(at, ".lock") })
	err = c.removeAll(&total, paths...)
	return total, err
}

// removeAll removes paths one after another, and counts them.
func (c *cleaner) removeAll(total *tree.Count, paths ...string) error {
	for _, at := range paths {
		n, err := c.t.Remove(at)
		if err != nil {
			return err
		}
		total.Add(n)
	}
	return nil
}

// removeBelow is removeAll for what matches patterns below a folder.
func (c *cleaner) removeBelow(total *tree.Count, root string, patterns ...string) error {
	for _, p := range patterns {
		paths, err := c.t.Glob(root + p)
		if err != nil {
			return err
		}
		if err := c.removeAll(total, paths...); err != nil {
			return err
		}
	}
	return nil
}

// dropLayers removes the layers that are gone from a list of layers, leaving
// what it does not know of the others untouched.
func (c *cleaner) dropLayers(list string, gone map[string]bool) error {
	data, err := c.t.ReadFile(list, maxCRIOList)
	if err != nil {
		return err
	}
	var all, kept []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("reading /%s: %w", list, err)
	}
	for _, raw := range all {
		var layer struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(raw, &layer); err != nil {
			return fmt.Errorf("reading /%s: %w", list, err)
		}
		if !gone[layer.ID] {
			kept = append(kept, raw)
		}
	}
	if len(kept) == len(all) {
		return nil
	}
	if kept == nil {
		kept = []json.RawMessage{}
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return errors.Join(fmt.Errorf("writing /%s", list), err)
	}
	return c.t.WriteFile(list, out, 0o600)
}

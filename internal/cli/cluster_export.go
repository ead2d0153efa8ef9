package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic/recipe"
)

func newClusterExport(c *clusterOptions) *cobra.Command {
	var own ownAddresses
	cmd := clusterCommand("export DIR", "Write the templates and cloud-init documents of the cluster", `export writes what up deploys, for az deployment group create and for reading: two
templates with their parameters, and the cloud-init documents of the machines. It asks
Azure for nothing, so the documents are those of a cluster that does not exist yet.`, func(ctx context.Context, args []string) error {
		s, err := c.open(ctx, &own)
		if err != nil {
			return err
		}
		d, err := recipe.Render(s.cluster, s.facts)
		if err != nil {
			return err
		}
		files, err := exported(d, s.cluster.Spec.Location)
		if err != nil {
			return err
		}
		names := []string{}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			name := filepath.Join(args[0], file)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // holds no secret
				return fmt.Errorf("cannot make directory: %w", err)
			}
			if err := os.WriteFile(name, files[file], 0o644); err != nil { //nolint:gosec // holds no secret
				return fmt.Errorf("cannot write file: %w", err)
			}
			names = append(names, name)
		}
		return c.print(map[string][]string{"files": names}, func(w io.Writer) { fmt.Fprintln(w, strings.Join(names, "\n")) })
	})
	own.add(cmd)
	return cmd
}

// exported are the files of export, by name.
func exported(d *recipe.Documents, location string) (map[string][]byte, error) {
	files := map[string][]byte{}
	readme := "Deploy the storage group first; the compute group refers to its identities.\n"
	for _, v := range []struct {
		name string
		d    recipe.Deployment
	}{{"storage", d.Storage}, {"compute", d.Compute}} {
		values := map[string]any{}
		for name, value := range v.d.Parameters {
			values[name] = map[string]any{"value": value}
		}
		// As the Azure CLI reads it.
		parameters := map[string]any{
			"$schema":        "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
			"contentVersion": "1.0.0.0", "parameters": values,
		}
		for name, value := range map[string]any{v.name + ".json": v.d.Template, v.name + ".parameters.json": parameters} {
			data, err := json.MarshalIndent(value, "", "  ")
			if err != nil {
				return nil, fmt.Errorf("cannot write %s: %w", name, err)
			}
			files[name] = append(data, '\n')
		}
		readme += fmt.Sprintf("\naz group create --name %[1]s --location %[2]s\naz deployment group create --resource-group %[1]s --name %[3]s --template-file %[4]s.json --parameters @%[4]s.parameters.json\n",
			v.d.Group, location, recipe.DeploymentName, v.name)
	}
	files["README"] = []byte(readme)
	for name, document := range d.CloudInit {
		files[filepath.Join("cloud-init", name+".yaml")] = document
	}
	return files, nil
}
